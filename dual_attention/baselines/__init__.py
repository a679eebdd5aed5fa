"""Relational architectures that came before the Dual Attention Transformer, to compare with.

==================================  ===================================================================================
:class:`Abstractor`                 relational cross-attention to symbols (Altabaa et al. 2024, arXiv 2304.00195);
                                    with an encoder and a decoder: :class:`Seq2SeqAbstractor`
:class:`PrediNet`                   differences of attended pairs (Shanahan et al. 2020, arXiv 1905.10307)
:class:`CoRelNet`                   the matrix of similarities, and nothing else (Kerg et al. 2022, arXiv 2206.05056)
:class:`ESBN`                       a recurrent controller that sees only how objects match those before
                                    (Webb et al. 2021, arXiv 2012.14601)
:class:`SlotAbstractor`             an Abstractor over slots, with their positions as symbols (Mondal et al. 2024,
                                    arXiv 2403.03458)
:class:`OCRA`                       a Transformer over relations of pairs of slots (Webb et al. 2023, arXiv 2306.02500)
==================================  ===================================================================================

All take sequences of objects ``(B, N, d)``, those over slots also their positions, and answer what does not fit with a
``TypeError`` or ``ValueError`` that names the argument. ``VisionAbstractor``, ``VisionPrediNet``, ``VisionCoRelNet``
and ``VisionESBN`` classify images whose patches are the objects. :class:`SlotAttention` (Locatello et al. 2020,
arXiv 2006.15055) finds objects among features, and :class:`SlotEncoder` in images.
"""

from .abstractor import Abstractor, AbstractorBlock, ObjectStreamAbstractorBlock
from .context_norm import ContextNorm
from .corelnet import CoRelNet
from .esbn import ESBN
from .factored import OCRA, SlotAbstractor
from .predinet import PrediNet
from .seq2seq import Seq2SeqAbstractor
from .slot_attention import SlotAttention
from .slot_encoder import SlotDecoder, SlotEncoder, VisionSlots
from .vision import VisionAbstractor, VisionCoRelNet, VisionESBN, VisionPrediNet

__all__ = [
    "ESBN",
    "OCRA",
    "Abstractor",
    "AbstractorBlock",
    "CoRelNet",
    "ContextNorm",
    "ObjectStreamAbstractorBlock",
    "PrediNet",
    "Seq2SeqAbstractor",
    "SlotAbstractor",
    "SlotAttention",
    "SlotDecoder",
    "SlotEncoder",
    "VisionAbstractor",
    "VisionCoRelNet",
    "VisionESBN",
    "VisionPrediNet",
    "VisionSlots",
]
