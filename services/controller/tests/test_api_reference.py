"""The API's page is what the API says of itself."""

from pathlib import Path

from bmq_controller.api.app import build_api
from bmq_controller.api.reference import reference

PAGE = Path(__file__).parents[3] / "docs" / "admin-api.md"


def test_the_page_is_the_api_s_own_words() -> None:
    assert PAGE.read_text() == reference(), "run: python -m bmq_controller.api.reference >docs/admin-api.md"


def test_every_request_and_every_type_is_described() -> None:
    document = build_api(None).openapi()  # type: ignore[arg-type]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation.get("description"), f"{method} {path}"
            assert operation["security"], f"{method} {path}"
            for parameter in operation.get("parameters", ()):
                assert parameter.get("description") or parameter["in"] == "path", (
                    f"{method} {path}: {parameter['name']}"
                )
    for name, schema in document["components"]["schemas"].items():
        assert schema.get("description") or name.startswith(("Page_", "HTTPValidation", "ValidationError")), name
