"""Whether C can be compiled here."""

import os
import shutil
import sys

from dual_attention.native.building import COMPILERS, SWITCH

HAS_COMPILER = sys.platform != "win32" and os.environ.get(SWITCH) != "0" and any(map(shutil.which, COMPILERS))
