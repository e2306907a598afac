"""URLs of watches and tests; `site.apps_urls` adds them to the site's."""

from django.urls import path

from contract.link_tests import WATCH
from scionlab.linktests import result_upload
from scionlab.linktests.pages import joint_test, link_tests, why
from scionlab.linktests.rest import joint_views, sending_views, test_views

urlpatterns = [
    path("ases/<key:pk>/joint-test/", joint_test.joint_test_new, name="joint_test_new"),
    path("ases/<key:pk>/joint-tests/<key:joint_id>/", joint_test.joint_test, name="joint_test"),
    path("ases/<key:pk>/joint-tests/<key:joint_id>/cancel/", joint_test.joint_cancel, name="joint_test_cancel"),
    path("ases/<key:pk>/links/<key:link_id>/why/", why.link_why, name="link_why"),
    path("ases/<key:pk>/links/<key:link_id>/watch/", link_tests.test_new, {"tool": WATCH}, name="watch_new"),
    path("ases/<key:pk>/links/<key:link_id>/test/<str:tool>/", link_tests.test_new, name="test_new"),
    path("ases/<key:pk>/links/<key:link_id>/tests/<key:test_id>/", link_tests.link_test, name="link_test"),
    path("ases/<key:pk>/links/<key:link_id>/tests/<key:test_id>/cancel/", link_tests.test_cancel, name="test_cancel"),
    path("ases/<key:pk>/links/<key:link_id>/tests/<key:test_id>/test.csv", link_tests.test_csv, name="test_csv"),
]
rest_patterns = [
    path("ases/<key:pk>/tests/", joint_views.UserASTestsView.as_view(), name="api_as_tests"),
    path("joint-tests/<key:pk>/", joint_views.JointTestDetailView.as_view(), name="api_joint_test_detail"),
    path("links/<key:pk>/tests/", test_views.LinkTestsView.as_view(), name="api_link_tests"),
    path("tests/<key:pk>/", test_views.LinkTestDetailView.as_view(), name="api_link_test_detail"),
    path("tests/<key:pk>/start/", sending_views.LinkTestStartView.as_view(), name="api_link_test_start"),
    path("tests/<key:pk>/report/", sending_views.LinkTestReportView.as_view(), name="api_link_test_report"),
]
host_patterns = [
    path("<str:uid>/test_results", result_upload.test_results, name="host_test_results"),
]
