"""Models."""

from scionlab.linktests.models.joint_test import JointTest
from scionlab.linktests.models.link_test import LinkTest, TestPolicy, TestResult

__all__ = ["JointTest", "LinkTest", "TestPolicy", "TestResult"]
