"""Pages that are tables: importance over heads and relations, and relation dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

from torch import Tensor

from ..._base.colours import colour_of
from ...generation.tokenizer import Tokenizer
from ..dictionaries import DictionaryEntry, PairExample, RelationDictionary
from .importance import check_importance
from .matrices import largest_of
from .page import Page, make_page
from .tokens import token_labels


def importance_page(
    values: Tensor,
    half_widths: Tensor | None = None,
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    title: str = "",
    unit: str = "",
) -> Page:
    """A page of effects, a row for each layer and a column for each head or relation, as :func:`.draw_importance`.

    >>> type(importance_page(torch.randn(2, 4), rows=["blocks.0", "blocks.1"])).__name__
    'Page'
    """
    names = check_importance(values, half_widths, rows, columns)
    values = values.detach().float().cpu()
    top = largest_of(values, ~values.isnan())
    lines = [f"<tr><th></th>{''.join(f'<th scope=col>{escape(name)}</th>' for name in names[1])}</tr>"]
    for row, name in enumerate(names[0]):
        halves = [None] * values.shape[1] if half_widths is None else half_widths[row].tolist()
        cells = "".join(_cell(value, half, top) for value, half in zip(values[row].tolist(), halves, strict=True))
        lines.append(f"<tr><th scope=row>{escape(name)}</th>{cells}</tr>")
    note = f'<p class="note">{escape(unit)}. Effects whose interval holds zero stand in brackets.</p>' if unit else ""
    return make_page(title, f'{note}<table class="grid">{"".join(lines)}</table>', height=180 + 48 * values.shape[0])


def _cell(value: float, half: float | None, top: float) -> str:
    if value != value:
        return '<td class="none"></td>'
    text = f"{value:.2g}"
    if half is not None:
        text = f"({text})" if abs(value) <= half else text
        text += f"<small>±{half:.1g}</small>"
    dark = " class=dark" if abs(value) > 0.6 * top else ""
    return f'<td{dark} style="background:{colour_of(value / top)}">{text}</td>'


def dictionary_page(
    dictionary: RelationDictionary, tokenizer: Tokenizer, *, title: str = "Relation dictionary"
) -> Page:
    """A page with a section for each relation: its pairs in their contexts, and matched counterexamples.

    The tokenizer is that of the corpus; it gives tokens their text.

    >>> from dual_attention.model_analysis.dictionaries import DictionarySettings, build_dictionary
    >>> from dual_attention.generation.tokenizer import ByteTokenizer
    >>> lm = DualAttnTransformerLM(257, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> dictionary = build_dictionary(lm, [torch.randint(97, 122, (12,)) for _ in range(8)], DictionarySettings(top=2))
    >>> type(dictionary_page(dictionary, ByteTokenizer())).__name__
    'Page'
    """

    def labels(tokens: Iterable[int]) -> list[str]:
        return token_labels(tokenizer, tokens)

    sections = []
    ends = dict.fromkeys((entry.layer, entry.relation, entry.end) for entry in dictionary.entries)
    for layer, relation, end in ends:
        name = f"{layer}, relation {relation}" + (" (lowest values)" if end == "low" else "")
        sections.append((name, f"{layer}-{relation}-{end}", dictionary.of(layer, relation, end)))
    links = "".join(f'<li><a href="#{escape(anchor)}">{escape(name)}</a></li>' for name, anchor, _ in sections)
    body = "".join(_section(name, anchor, entries, labels) for name, anchor, entries in sections)
    about = ", ".join(
        f"{escape(str(dictionary.about[key]))} {key}" for key in ("documents", "tokens") if key in dictionary.about
    )
    note = (
        f'<p class="note">{about}{". " if about else ""}The <b class="receiver">receiver</b> is compared with the '
        '<b class="sender">sender</b>. Beside each pair: others of about the same distance and frequency, drawn at '
        "random, and their values.</p>"
    )
    return make_page(title, f"{note}<nav><ul>{links}</ul></nav>{body}", height=760)


_Labels = Callable[[Iterable[int]], list[str]]


def _section(name: str, anchor: str, entries: list[DictionaryEntry], labels: _Labels) -> str:
    rows = "".join(
        f"<tr><td>{escape(str(entry.rank))}</td>{_pair(entry.example, labels)}"
        f"<td><table>{''.join(f'<tr>{_pair(other, labels)}</tr>' for other in entry.counterexamples)}</table></td></tr>"
        for entry in entries
    )
    head = "<tr><th></th><th>value</th><th>pair and contexts</th><th>matched pairs</th></tr>"
    return f'<section id="{escape(anchor)}"><h2>{escape(name)}</h2><table class="pairs">{head}{rows}</table></section>'


def _pair(one: PairExample, labels: _Labels) -> str:
    """Cells with the value and the contexts of a pair."""
    return f'<td class="number">{one.value:.3g}</td><td class="text">{_contexts(one, labels)}</td>'


def _contexts(one: PairExample, labels: _Labels) -> str:
    """Both contexts in the order of the text, as one where they meet, with receiver and sender marked."""
    tokens: dict[int, int] = {}
    for context in (one.sender_context, one.receiver_context):
        tokens.update(enumerate(context.tokens, context.start))
    places = sorted(tokens)
    parts, run = [], list[int]()
    for place in [*places, None]:
        if run and (place is None or place != run[-1] + 1):
            texts = labels(tokens[number] for number in run)
            parts.append("".join(_marked(number, text, one) for number, text in zip(run, texts, strict=True)))
            run = []
        if place is not None:
            run.append(place)
    return ' <span class="gap">…</span> '.join(parts)


def _marked(place: int, text: str, one: PairExample) -> str:
    text = escape(text.replace("␣", " ") if place not in (one.receiver, one.sender) else text)
    for role, where in (("receiver", one.receiver), ("sender", one.sender)):
        if place == where:
            text = f'<b class="{role}">{text}</b>'
    return text
