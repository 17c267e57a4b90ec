"""Sphinx's settings. tools/docs/build.py lays the pages out and calls Sphinx; `make docs` calls that."""

import os

project = "Sluice"
author = "The Sluice authors"
project_copyright = "The Sluice authors, Apache-2.0"
release = version = os.environ.get("SLUICE_DOCS_VERSION", "")

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["site/*"]
myst_heading_anchors = 4
nitpicky = True
# Signatures in torch's notation name types that are no Python objects.
nitpick_ignore_regex = [("py:.*", ".*")]
toc_object_entries = False
python_maximum_signature_line_length = 160
maximum_signature_line_length = 160
highlight_language = "text"

html_theme = "furo"
html_title = f"Sluice {version}"
html_static_path = ["static"]
html_css_files = ["style.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#14597a", "color-brand-content": "#14597a"},
    "dark_css_variables": {"color-brand-primary": "#7cc4e8", "color-brand-content": "#7cc4e8"},
}
