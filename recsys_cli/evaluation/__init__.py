"""How good a trained model is: metrics, full ranking, baselines and the report."""
