"""Raw interactions to a served recommender, with one YAML file and one workspace folder."""

__version__ = "0.1.0"
