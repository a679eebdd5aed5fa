"""Messages of errors, as one line for people who run commands."""

from dual_attention._base.extras import extra_of


def in_one_line(error: BaseException) -> str:
    """The message of an error, with the extra to install where a package is missing."""
    message = " ".join(str(error).split()) or type(error).__name__
    extra = extra_of(error.name) if isinstance(error, ModuleNotFoundError) else None
    if extra is not None and "pip install" not in message:
        return f'{message}: pip install "relational-attention[{extra}]"'
    ours = type(error).__module__.startswith(("dat.", "dual_attention."))
    if not ours and not isinstance(error, (ValueError, TypeError, OSError, ImportError)):
        message += f" ({type(error).__name__}; DAT_DEBUG=1 shows where)"
    return message
