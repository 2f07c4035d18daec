"""Typed settings from `SEED_AGENTS_*` variables, declared once in each service's `settings.py`.

An unknown `SEED_AGENTS_*` variable is a start-up error that names the nearest known one, so a misspelt setting never
goes unnoticed. Every process knows the names of all services (`catalog.py`), because operators share one environment.
"""

from libs.settings.base import Settings, SettingsError, http_url, load

__all__ = ["Settings", "SettingsError", "http_url", "load"]
