"""Common behaviour of the REST API's views: write access, query parameters, ETags, idempotency.

GET     unknown parameters are rejected; ETag, and 304 for If-None-Match
POST    Idempotency-Key: executed once (`once`)
others  If-Match: 412 after a concurrent change (`changing`)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from django.core.exceptions import ObjectDoesNotExist
from django.db import transaction
from django.db.models import QuerySet
from rest_framework import exceptions, status
from rest_framework.generics import GenericAPIView
from rest_framework.metadata import BaseMetadata
from rest_framework.permissions import SAFE_METHODS, BasePermission, IsAuthenticated
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from scionlab.platform.etags import check_if_match, etag_of, is_known
from scionlab.platform.retry import retried
from scionlab.web.rest.idempotency import Answer, answer_once
from scionlab.web.rest.queries import Query

if TYPE_CHECKING:
    from django.contrib.auth.models import _User as User  # the stubs' name of AUTH_USER_MODEL

_Body = TypeVar("_Body", bound=Serializer[Any])


class HoldsSecret(BasePermission):
    """A response with a host's secret needs write access: the secret allows to act as the host. `accounts.token_auth`
    rejects changes with read-only tokens."""

    message = (
        "The response contains the secret of the host, and your token is read-only. Use a token with read "
        "and write access."
    )
    code = "token_read_only"

    def has_permission(self, request: Request, view: APIView) -> bool:  # noqa: ARG002  the framework's signature
        return request.method == "OPTIONS" or getattr(request.auth, "may_write", True)


class StaffWrites(BasePermission):
    """Reading is for everyone."""

    message = "Only administrators can change this."
    code = "administrators_only"

    def has_permission(self, request: Request, view: APIView) -> bool:
        is_change = request.method not in SAFE_METHODS and request.method in view.allowed_methods  # others are 405
        return not is_change or bool(request.user and request.user.is_staff)


class StaffOnly(StaffWrites):
    message = "Only administrators can read this."

    def has_permission(self, request: Request, view: APIView) -> bool:  # noqa: ARG002  the framework's signature
        return bool(request.user and request.user.is_staff)


class Methods(BaseMetadata):
    """OPTIONS: allowed methods; the OpenAPI description has the rest."""

    def determine_metadata(self, request: Request, view: APIView) -> dict[str, Any]:  # noqa: ARG002  the framework's
        return {"methods": view.allowed_methods, "description": "/api/v1/schema/"}


class ApiView(GenericAPIView[Any]):
    """`query`: the parameters of GET. `asked`: their values."""

    permission_classes: Any = (IsAuthenticated,)
    query: ClassVar[type[Query]] = Query
    queryset: QuerySet[Any] | None = None
    metadata_class = Methods
    asked: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make each change one transaction, retried after a database conflict."""
        super().__init_subclass__(**kwargs)
        for name in {"post", "put", "patch", "delete"} & vars(cls).keys():
            setattr(cls, name, retried(vars(cls)[name]))

    @property
    def person(self) -> User:
        assert self.request.user.is_authenticated  # noqa: S101  IsAuthenticated let nobody else through
        return self.request.user

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        method = (request.method or "").lower()
        if method in self.http_method_names and hasattr(self, method):
            query = self.query if method in {"get", "head"} else Query
            self.asked = query.read(request.query_params)

    def sent(self, body: type[_Body]) -> _Body:
        """The content of the request. Raises `ValidationError`, and `RuleError` of the body's own rules."""
        found = body(data=self.request.data)
        found.is_valid(raise_exception=True)
        return found

    # --- GET -------------------------------------------------------------------------------------------------

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(response, Response) and response.data is not None and status.is_success(response.status_code):
            etag = etag_of(response.data)
            response["ETag"] = etag
            if request.method in {"GET", "HEAD"} and is_known(request.headers.get("If-None-Match", ""), etag):
                response.status_code, response.data = status.HTTP_304_NOT_MODIFIED, None
        return super().finalize_response(request, response, *args, **kwargs)

    def page_of(self, rows: Any, document: Callable[[list[Any]], Any]) -> Response:
        """One page of a list; `rows` is a query or a list, and `document` gets those of the page."""
        found = self.paginate_queryset(rows)
        return self.get_paginated_response(document(list(found or [])))

    # --- PATCH, PUT, DELETE -----------------------------------------------------------------------------------

    @contextmanager
    def changing(self, lock: Callable[[], object], document: Callable[[], Any]) -> Iterator[None]:
        """Change an object within it. With If-Match, `lock` locks everything that `document` shows, in the order of
        `testbed.locks`; then the tags are compared. A deleted object is 404. Raises `Stale`, `IfMatchInvalid`,
        `NotFound`."""
        header = self.request.headers.get("If-Match")
        try:
            if header is None:
                yield
                return
            with transaction.atomic():
                lock()
                check_if_match(header, document())
                yield
        except ObjectDoesNotExist as exc:
            raise exceptions.NotFound from exc

    # --- POST ------------------------------------------------------------------------------------------------

    def created(self, path: str, document: Any) -> Response:
        """`path`: where the new object is."""
        headers = {"Location": self.request.build_absolute_uri(path)}
        return Response(document, status=status.HTTP_201_CREATED, headers=headers)

    def once(self, work: Callable[[], Response], *, is_secret: bool = False) -> Response:
        """Return the response of `work`; for a repeated Idempotency-Key, the first response."""
        key = self.request.headers.get("Idempotency-Key")
        if key is None:
            return work()
        made: list[Response] = []

        def kept() -> Answer:
            response = work()
            made.append(response)
            headers = {name: response[name] for name in ("Location",) if response.has_header(name)}
            body = JSONRenderer().render(response.data).decode()
            return Answer(response.status_code, body, headers, is_secret=is_secret)

        answer = answer_once(user=self.person, key=key, fingerprint=self._fingerprint(), work=kept)
        if not answer.is_replayed:
            return made[0]
        headers = {**answer.headers, "Idempotency-Replayed": "true"}
        return Response(json.loads(answer.body), status=answer.status, headers=headers)

    def _fingerprint(self) -> str:
        """Hash of the request's content: independent of the JSON's formatting."""
        asked = [self.request.method, self.request.path, self.request.data]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()
