"""Measurements of pywaku against the JavaScript implementations: `python -m bench`."""
