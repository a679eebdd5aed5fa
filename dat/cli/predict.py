"""``dat predict``: what a trained model answers, and the relations that made the answer."""

from ..explorer.predicting import run_predict

predict = run_predict
"""``dat predict``."""
