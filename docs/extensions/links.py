"""Every link inside the finished site leads somewhere, and no page fetches anything from elsewhere, or the build fails.

Links to other places are listed in ``external-links.txt``, beside the site; nobody is asked whether they answer.
"""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)


class Page(HTMLParser):
    """What a page can be reached by, where it leads, and what it is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.leads_to: list[str] = []
        self.fetches: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take what an element says."""
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value)
            elif name == "href" and tag == "a":
                self.leads_to.append(value)
            elif name == "src" or (name == "href" and tag == "link"):
                self.fetches.append(value)


def check(site: Path) -> tuple[list[str], set[str], int]:
    """What is wrong with a site's links, links to other places, and how many were looked at."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    wrong, external, looked_at = [], set(), 0
    for path, page in pages.items():
        for link in [*page.leads_to, *page.fetches]:
            looked_at += 1
            if urlsplit(link).scheme or link.startswith("//"):
                external.add(link)
                if link in page.fetches and not link.startswith("data:"):
                    wrong.append(f"{path.relative_to(site.resolve())}: is made of {link}, which is elsewhere")
            elif (why := _dead(path, link, pages)) is not None:
                wrong.append(f"{path.relative_to(site.resolve())}: {link}: {why}")
    return wrong, {link for link in external if not link.startswith("data:")}, looked_at


def _dead(path: Path, link: str, pages: dict[Path, Page]) -> str | None:
    """Why a link inside the site leads nowhere, or None."""
    file, anchor = urldefrag(link)
    file = urlsplit(file).path
    target = (path.parent / unquote(file)).resolve() if file else path
    if not target.is_file():
        return "there is no such file"
    if anchor and target in pages and unquote(anchor) not in pages[target].anchors:
        return "the page has no such place"
    return None


def _finish(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    wrong, external, looked_at = check(Path(app.outdir))
    for line in wrong:
        logger.warning("%s", line, type="links")
    (Path(app.outdir).parent / "external-links.txt").write_text("\n".join(sorted(external)) + "\n", encoding="utf-8")
    logger.info("looked at %d links: %d dead, %d to other places, listed", looked_at, len(wrong), len(external))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
