"""Models."""

from scionlab.scion_config.models.trust import TRC, ASKeys, Certificate

__all__ = ["TRC", "ASKeys", "Certificate"]
