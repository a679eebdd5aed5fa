"""The site: `make docs` builds it from the pages of the repository and the docstrings of the library, without network.

The repository itself is the folder of sources, so that pages link each other as they do on GitHub. Links to files that
are no pages of the site lead into the repository: to the address in the variable REPOSITORY, else into this checkout.
"""

import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from PIL import Image
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.errors import PycodeError
from sphinx.ext import intersphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS)]

import make_exhibits  # noqa: E402
import markdown_pages  # noqa: E402
import notebook_pages  # noqa: E402
from picture_makers import maker_of  # noqa: E402
from public_names import is_class_or_function, public_names, without_example  # noqa: E402

import dual_attention  # noqa: E402

REPOSITORY = os.environ.get("REPOSITORY", "").rstrip("/")
NAMES = public_names()
logger = logging.getLogger(__name__)


def directive(value: Any) -> str:
    """The directive of autodoc that describes a public value."""
    return "autoclass" if isinstance(value, type) else "autofunction" if is_class_or_function(value) else "autodata"


project = "relational-attention"
author = "The relational-attention authors"
version = release = dual_attention.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.linkcode",
]
root_doc = "README"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/reference/*.rst",
    "examples/README.md",
    "examples/*.ipynb",
    "studies/README.md",
    "studies/*/*.md",
    "benchmarks/*.md",
    "benchmarks/results/README.md",
]

# The order of the pages in the margin. A page that is in none of these fails the build.
SECTIONS = {
    "Start": "start your-data your-part use-a-layer reproduce pretrain look-inside study-attention migrating faq",
    "Learn": "tour choosing masks-and-positions long-sequences attention-toolbox attention-gallery composed-attention "
    "attention-at-work",
    "Models": "language-models sequence-to-sequence encoders vision-models hugging-face babylm models costs "
    "equal-arithmetic mup",
    "Look inside": "explorer explorer-effects explorer-files exhibits looking-inside relations-seen other-tools",
    "Experiments": "relational-games experiments runs extending-training sweeps clusters",
    "Reference": "reference architecture rooms reliability clients transformers-tests log",
}
STUDIES = [str(path.relative_to(ROOT).with_suffix("")) for path in sorted(ROOT.glob("studies/*/*.md"))]
TREES = {
    **{name: [f"docs/{page}" for page in pages.split()] for name, pages in SECTIONS.items()},
    "Examples": ["examples/README", *(f"examples/{path.stem}" for path in sorted(ROOT.glob("examples/*.ipynb")))],
    "Studies": ["studies/README", *sorted(STUDIES, key=lambda page: (Path(page).parent, Path(page).stem != "README"))],
    "Project": [
        *(f"benchmarks/{page}" for page in ("README", "NOTEBOOK", "results/README")),
        *sorted(path.stem for path in ROOT.glob("[!R]*.md")),
    ],
}
MODULES = [f"docs/reference/{module}" for module in NAMES]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 6
suppress_warnings = ["myst.header"]  # results begin with a heading of the second level

autosummary_generate = True
autosummary_ignore_module_all = False
autosummary_context = {
    "directives": {
        module: {name: directive(value) for name, value in names.items()} for module, names in NAMES.items()
    },
    "elsewhere": {
        module: sorted({*getattr(sys.modules[module], "__all__", ())} - names.keys()) for module, names in NAMES.items()
    },
}
autodoc_typehints = "signature"
nitpicky = True
nitpick_ignore_regex = [("py:class", ".*")]  # annotations name types that are not public
toc_object_entries = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
intersphinx_mapping = {
    "torch": ("https://docs.pytorch.org/docs/stable/", str(DOCS / "inventories/torch.inv")),
    "transformers": ("https://huggingface.co/docs/transformers/", str(DOCS / "inventories/transformers.inv")),
}

html_theme = "furo"
html_title = "relational-attention"
html_math_renderer = "mathml"
html_copy_source = False
html_search_scorer = str(DOCS / "search.js")
html_show_sphinx = html_show_copyright = False
templates_path = [str(DOCS / "templates")]  # autosummary reads it from the folder of sources
html_static_path = ["static"]
html_css_files = ["site.css"]


def render_math(writer: Any, node: nodes.math | nodes.math_block, *, block: bool) -> None:
    """MathML, which browsers draw without a script or a font of ours."""
    try:
        mathml = tex2mathml(node.astext().replace(r"\lt", "<").replace(r"\gt", ">"), as_block=block)
    except MathError as error:
        logger.warning("cannot write %r as MathML: %s", node.astext(), error, location=node)
        mathml = ""
    writer.body.append(f'<div class="math">{mathml}</div>' if block else mathml)
    raise nodes.SkipNode


def in_repository(target: str, page: str) -> str:
    """Address of a file or folder of the repository on a page of the site."""
    return f"{REPOSITORY or os.path.relpath(ROOT, ROOT / 'build/site' / Path(page).parent)}/{target}"


def linkcode_resolve(domain: str, described: dict[str, str]) -> str | None:
    """Address of the source of a class, a function or a method."""
    value: Any = importlib.import_module(described["module"])
    try:
        for name in described["fullname"].split("."):
            value = getattr(value, name)
        value = inspect.unwrap(value)
        source = ModuleAnalyzer.for_module(value.__module__)
        _, line, _ = source.find_tags()[value.__qualname__]
    except (AttributeError, KeyError, PycodeError):  # a value, or what another package defines
        return None
    if not Path(source.srcname).is_relative_to(ROOT):
        return None
    return in_repository(f"{Path(source.srcname).relative_to(ROOT)}#L{line}", "docs/reference/page")


def formulas_as_text(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Show formulas as they are written, and describe values by the text at their assignment."""
    if what == "data":
        texts = (assigned(name.rpartition(".")[2], module) for module in [*sys.modules])
        lines[:] = next(filter(None, texts), [f"``{value}``"])
    if what in ("attribute", "data", "property"):
        lines.insert(0, "")  # or napoleon takes what stands before a colon for a type
    found: list[str] = []
    formula = False
    for line in lines:
        plain = re.sub(r"(:\w+:)?`+", "", line.strip())
        if line.startswith("Math: "):
            formula = True
            found.append(f"``{plain.removeprefix('Math: ')}``")
        elif formula and plain:
            found[-1] = f"{found[-1].removesuffix('``')} {plain}``"
        else:
            formula = False
            if not line.lstrip().startswith(">>>"):
                line = re.sub(r"(``.*?``)|\|", lambda bar: bar[1] or r"\|", line)  # |x| is no substitution
                line = re.sub(r"^    (\w+(, \w+)+): ", lambda names: names[0].replace(", ", ","), line)
            found.append(line)
    lines[:] = found


def assigned(name: str, module: str) -> list[str]:
    """The docstring below an assignment to a name in a module of the library."""
    if not module.startswith("dual_attention") or name not in vars(sys.modules[module]):
        return []
    return ModuleAnalyzer.for_module(module).find_attr_docs().get(("", name), [])


def skip_fields(app: Sphinx, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """Fields of a named tuple are described in its docstring."""
    return True if type(value).__name__ == "_tuplegetter" else None


def find_name(app: Sphinx, env: Any, node: addnodes.pending_xref, content: nodes.TextElement) -> Any:
    """A name by its last part, whatever module it is imported from, if there is only one such."""
    if node.get("refdomain") != "py":
        return None
    path = node["reftarget"].split(".")
    name = ".".join(path[-2:] if node["reftype"] in ("meth", "attr") else path[-1:])
    domain = env.domains["py"]
    ours = [full for full in domain.objects if full.endswith(f".{name}")]
    if len(ours) == 1:
        return domain.resolve_xref(env, node["refdoc"], app.builder, node["reftype"], ours[0], node, content)
    for full in env.intersphinx_inventory.get("py:class", {}):
        if full.rpartition(".")[2] == name and path[0] in (name, full.partition(".")[0]):
            node["reftarget"] = full
            return intersphinx.missing_reference(app, env, node, content)
    return None


class LinksIntoTheRepository(SphinxTransform):
    """Links to files and folders that are no pages lead into the repository."""

    default_priority = 5

    def apply(self, **kwargs: Any) -> None:
        page = Path(self.env.docname)
        for node in [
            *self.document.findall(addnodes.download_reference),
            *self.document.findall(addnodes.pending_xref),
        ]:
            target = os.path.normpath(page.parent / node["reftarget"])
            if isinstance(node, addnodes.pending_xref):
                if node.get("refdomain") == "doc" and node["reftarget"] not in self.env.found_docs:
                    target = node["reftarget"] + ".md"
                elif node.get("reftype") != "myst" or not (ROOT / target).is_dir():
                    continue
            if not (ROOT / target).exists():
                continue
            node.replace_self(nodes.reference("", "", *node.children, refuri=in_repository(target, str(page))))


def add_trees(app: Sphinx, docname: str, source: list[str]) -> None:
    """The README holds the margin together, without a line of it that GitHub would show."""
    if docname == root_doc:
        for name, pages in TREES.items():
            source[0] += (
                f"\n```{{toctree}}\n:hidden:\n:caption: {name}\n\n"
                + "\n".join(f"/{page}" for page in pages)
                + "\n```\n"
            )


class LinksToExhibits(SphinxTransform):
    """Names of the files of exhibits lead to them, which the build writes beside their page."""

    default_priority = 500

    def apply(self, **kwargs: Any) -> None:
        if self.env.docname != "docs/exhibits":
            return
        for node in [*self.document.findall(nodes.literal)]:
            if node.astext().removesuffix(".html") in make_exhibits.EXHIBITS:
                node.replace_self(nodes.reference("", "", node.deepcopy(), refuri=f"exhibits/{node.astext()}"))


def write_exhibits(app: Sphinx, error: Exception | None) -> None:
    """Write the exhibits, once the site has been built: in a process of its own, since autodoc replaces defaults."""
    if not error and app.builder.name == "html" and "docs/exhibits" in app.env.found_docs:
        folder = Path(app.outdir, "docs/exhibits")
        subprocess.run([sys.executable, make_exhibits.__file__, "--out", str(folder)], check=True)


def complain(app: Sphinx, doctree: nodes.document) -> None:
    """Tell of pictures that no command makes, and of public names without an example."""
    for picture in doctree.findall(nodes.image):
        if not picture["uri"].startswith("data:") and not maker_of(picture["uri"]):
            logger.warning("no command makes the picture %s", picture["uri"], location=picture)
    module = app.env.docname.rpartition("/")[2]
    for name in without_example(module, NAMES.get(module, {})):
        logger.warning("%s has no example in its docstring", name, location=app.env.docname)


def show_as_printed(app: Sphinx, doctree: nodes.document) -> None:
    """Give pictures the size of their text: that of print, or the width of the page and a link to the whole picture."""
    for picture in doctree.findall(nodes.image):
        file = Path(app.srcdir) / picture["uri"]
        if file.suffix == ".png" and file.is_file():
            with Image.open(file) as image:
                if dpi := image.info.get("dpi"):
                    picture["width"] = f"{round(96 * image.width / dpi[0])}px"


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer(
        "mathml",
        (lambda writer, node: render_math(writer, node, block=False), None),
        (lambda writer, node: render_math(writer, node, block=True), None),
    )
    app.add_transform(LinksIntoTheRepository)
    app.add_transform(LinksToExhibits)
    app.add_config_value("trees", {**TREES, "Modules": MODULES}, "html")
    app.connect("source-read", add_trees)
    app.connect("autodoc-process-docstring", formulas_as_text, priority=400)  # before napoleon
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("missing-reference", find_name)
    app.connect("doctree-read", complain)
    app.connect("doctree-read", show_as_printed)
    notebook_pages.setup(app)
    app.connect("build-finished", write_exhibits)
    app.connect("build-finished", markdown_pages.write)
