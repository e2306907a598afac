"""What the app adds to those below it."""

from django.apps import AppConfig


class ScionConfigConfig(AppConfig):
    name = "scionlab.scion_config"
    label = "scion_config"

    def ready(self) -> None:
        from scionlab.delivery.files import FILES
        from scionlab.platform.metrics.figures import MORE_FIGURES
        from scionlab.platform.secrets_box import keep_encrypted
        from scionlab.scion_config import credentials, vpn
        from scionlab.scion_config.figures import TRUST_END
        from scionlab.scion_config.life import KeysLife
        from scionlab.scion_config.models import ASKeys, Certificate
        from scionlab.scion_config.offer import TrustOffer
        from scionlab.testbed.cockpit import OFFERS
        from scionlab.testbed.life import LIVES
        from scionlab.testbed.models import VPNClientKeys, VPNServerKeys

        keep_encrypted(Certificate, "private_encrypted")
        keep_encrypted(ASKeys, "private_encrypted", "master0_encrypted", "master1_encrypted")
        keep_encrypted(VPNServerKeys, "ca_key_encrypted", "key_encrypted")
        keep_encrypted(VPNClientKeys, "key_encrypted")
        LIVES.append(KeysLife())
        FILES.append(credentials.files_for)
        FILES.append(vpn.files_for)
        OFFERS.append(TrustOffer())
        MORE_FIGURES.append(TRUST_END)
