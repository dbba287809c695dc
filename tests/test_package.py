"""What the papers of the house say about the package is what the package says."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_one_version_everywhere():
    version = PROJECT["version"]
    assert re.search(r"^version: (\S+)$", text("CITATION.cff"), re.M)[1] == version
    assert re.search(r"^## (\S+)", text("CHANGELOG.md"), re.M)[1] == version
    readme = re.findall(r"apes_fl-([\d.]+)-py3|version ([\d.]+\d)|version = \{([\d.]+)\}", text("README.md"))
    assert len(readme) == 3
    assert {"".join(found) for found in readme} == {version}
    assert f"| {'.'.join(version.split('.')[:2])} | yes |" in text("SECURITY.md")


def test_the_paper_is_cited_alike():
    title = "Echo of Neighbors: Privacy Amplification for Personalized Private Federated Learning with Shuffle Model"
    for name in ("CITATION.cff", "README.md"):
        assert title in " ".join(text(name).replace("\n> ", " ").split())
        assert "10.1609/aaai.v37i10.26400" in text(name)


def test_every_extra_is_named_where_one_installs():
    install = text("README.md").split("## Install")[1].split("\n## ")[0]
    assert [name for name in PROJECT["optional-dependencies"] if f"`{name}`" not in install] == ["docs", "dev"]
