"""The version of the package: the one place where it stands. CONTRIBUTING.md says how a release is made."""

__version__ = "0.1.0"
