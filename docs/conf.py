"""How the site is built: `make docs`. Everything is read from this checkout, nothing from a network."""

import hashlib
import importlib.util
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "extensions"))

project = "APES"
author = "The APES developers"
copyright = author
version = release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
extensions += ["executed", "command_line", "docstrings", "links"]  # ours
exclude_patterns = ["_build"]

# Pages are Markdown, as they are read without a site too.
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

# What runs on a page is run again when the code, or an example, is another.
_code = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "examples").iterdir()])
executed_code = hashlib.sha256(b"".join(path.read_bytes() for path in _code if path.is_file())).hexdigest()

# A block that names no language is commands, or a drawing.
highlight_language = "none"

# Docstrings: a name in single backticks is a name.
default_role = "literal"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
maximum_signature_line_length = 100
# Where torch is missing, what needs it is read without it.
autodoc_mock_imports = [] if importlib.util.find_spec("torch") else ["torch"]
napoleon_use_rtype = napoleon_attr_annotations = False
napoleon_custom_sections = ["Contract", "Guarantee"]

html_theme = "furo"
html_title = f"APES {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style, pygments_dark_style = "default", "github-dark"
