"""Writes by a client of Confluent's REST API that others made; it runs in an environment of that client's own.

rest_client.py URL TOPIC: one line of JSON for each answer, the last one of what it was refused.
"""

import json
import sys

from kafka_mcp.api_client import Api  # type: ignore[import-not-found]


def main(url: str, topic: str) -> None:
    client = Api(url)
    print(json.dumps(client.list_clusters()))
    print(json.dumps(client.get_cluster()))
    print(json.dumps(client.produce_record(topic, "plain", value_format="STRING")))
    headers = [{"name": "from", "value": "cmVzdA=="}]
    print(json.dumps(client.produce_record(topic, {"of": ["JSON", 1]}, key="k", headers=headers, partition_id=0)))
    print(json.dumps(client.produce_record(topic, "AAEC/w==", key="k", value_format="BINARY", key_format="STRING")))
    for refused in (lambda: client.produce_record("nowhere", "x"), lambda: client.get_cluster("another")):
        try:
            refused()
        except Exception as error:  # noqa: BLE001 - it raises no narrower one
            print(json.dumps(str(error)))


if __name__ == "__main__":
    main(*sys.argv[1:])
