"""Raw interactions to a trained and measured recommender, with one YAML file and one workspace folder."""

__version__ = "0.1.0"
