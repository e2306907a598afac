"""Joint tests of an AS over the REST API. Those of other users are 404, except for administrators."""

# ruff: noqa: ARG002  REST framework hands every handler the request and the parts of its URL
from __future__ import annotations

from django.shortcuts import get_object_or_404
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from scionlab.accounts.locks import lock_user
from scionlab.linktests.joint_report import JointStatus, status_of_joint, with_parts
from scionlab.linktests.joint_test import joint_test_cancel, joint_test_create
from scionlab.linktests.models import JointTest
from scionlab.linktests.rest.joint_documents import JointTestBody, JointTestDocument, JointTestReportDocument
from scionlab.platform.clock import database_now
from scionlab.testbed.locks import lock_user_as
from scionlab.user_ases.rest.as_views import UserASView
from scionlab.web.rest.queries import PageQuery
from scionlab.web.rest.schema import describe


class UserASTestsView(UserASView):
    query = PageQuery

    @describe("tests", "Joint tests of an AS", "Newest first.", answer=JointTestDocument, is_list=True)
    def get(self, request: Request, pk: int) -> Response:
        rows = with_parts(JointTest.objects.filter(user_as=self.user_as(pk)))
        now = database_now()
        return self.page_of(
            rows, lambda found: JointTestDocument([status_of_joint(one, now=now) for one in found], many=True).data
        )

    @describe(
        "tests",
        "Test all Links of an AS together",
        "Reserves two tests of each active Link, or none: each Link alone, one after the other, then all at once. The "
        "user's end of each part begins with its `/start/`. 409 `test_slot_taken`: another test has that time; "
        "`next_free_at` is the next beginning at which all Links are free.",
        body=JointTestBody,
        answer=JointTestDocument,
        success=status.HTTP_201_CREATED,
        examples={"8 s for each direction": {"seconds": 8}},
    )
    def post(self, request: Request, pk: int) -> Response:
        self.user_as(pk)
        return self.once(lambda: self._create(pk))

    def _create(self, pk: int) -> Response:
        wanted = self.sent(JointTestBody).validated_data
        with self.changing(lambda: self._lock(pk), lambda: self.document(pk)):
            made = joint_test_create(user_as_id=pk, actor=self.person, **wanted)
        found = status_of_joint(with_parts(JointTest.objects.all()).get(pk=made.pk), now=database_now())
        return self.created(f"/api/v1/joint-tests/{made.pk}/", JointTestDocument(found).data)

    def _lock(self, pk: int) -> None:
        lock_user(self.person.pk)
        lock_user_as(pk)


class JointTestDetailView(UserASView):
    def joint(self, pk: int) -> JointStatus:
        rows = with_parts(JointTest.objects.filter(user_as__in=self.rows()))
        return status_of_joint(get_object_or_404(rows, pk=pk), now=database_now())

    @describe("tests", "One joint test, with what was measured", answer=JointTestReportDocument)
    def get(self, request: Request, pk: int) -> Response:
        return Response(JointTestReportDocument(self.joint(pk)).data)

    @describe(
        "tests",
        "Cancel a joint test",
        "All its parts. Cancelling one that has ended has no effect.",
        success=status.HTTP_204_NO_CONTENT,
    )
    def delete(self, request: Request, pk: int) -> Response:
        user_as_id = self.joint(pk).joint.user_as_id
        with self.changing(lambda: lock_user_as(user_as_id), lambda: JointTestReportDocument(self.joint(pk)).data):
            joint_test_cancel(joint_test_id=pk, actor=self.person)
        return Response(status=status.HTTP_204_NO_CONTENT)
