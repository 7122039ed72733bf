"""IncrementalAlterConfigs: what was acknowledged last is what the topic has in the end, whether it was set for it or
for all that have nothing of their own.
"""

from collections.abc import Mapping, Sequence

from bmq.config.topic_config import TOPIC_KEYS
from bmq_sim.client import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, RETRIABLE, SimClient
from bmq_sim.history import History, Told
from bmq_sim.programs.asking import set_until_told

_TOPIC_RESOURCE, _BROKER_RESOURCE = 2, 4
_SET, _DELETE = 0, 1


class ConfigChanger:
    """Sets keys of one topic, or what they are by default, each to one of its values, again and again."""

    def __init__(
        self,
        client: SimClient,
        history: History,
        topic: str,
        choices: Mapping[str, Sequence[str]],
        *,
        pause_s: float,
        by_default: bool = False,
    ) -> None:
        """`choices` by the topic's key. `by_default`: the cluster's defaults are set, of keys that nobody sets for the
        topic.
        """
        self._client = client
        self._history = history
        self._topic = topic
        self._choices = choices
        self._pause_s = pause_s
        self._by_default = by_default

    async def run(self) -> None:
        """Until its client is stopped."""
        client, rng = self._client, self._client.rng
        for register, value in (await self._described()).items():
            self._history.initial[register] = value
        while not client.stopped:
            await client.rest(self._pause_s * rng.random())
            key = rng.choice(sorted(self._choices))
            value = rng.choice(self._choices[key])
            kind, name = (_BROKER_RESOURCE, "") if self._by_default else (_TOPIC_RESOURCE, self._topic)
            config = {
                "name": TOPIC_KEYS[key].synonym if self._by_default else key,
                "config_operation": _SET,
                "value": value,
            }
            await set_until_told(
                client,
                self._history,
                api_key=INCREMENTAL_ALTER_CONFIGS,
                fields={
                    "resources": [{"resource_type": kind, "resource_name": name, "configs": [config]}],
                    "validate_only": False,
                },
                code_of=lambda answer: int(answer.responses[0].error_code),
                writes=((self._register(key), value),),
            )

    async def look(self) -> None:
        """Keeps what the topic has; for when all is well and every node has heard of everything."""
        asked = self._history.turn()
        for register, value in (await self._described()).items():
            self._history.told.append(Told(register=register, value=value, asked=asked, told=self._history.turn()))

    def _register(self, key: str) -> str:
        return f"{key} of {self._topic}"

    async def _described(self) -> dict[str, str]:
        asked = {
            "resource_type": _TOPIC_RESOURCE,
            "resource_name": self._topic,
            "configuration_keys": sorted(self._choices),
        }
        attempt = 0
        while True:
            answer = await self._client.call(
                DESCRIBE_CONFIGS, {"resources": [asked], "include_synonyms": False, "include_documentation": False}
            )
            found = answer.results[0]
            if not found.error_code:
                return {self._register(config.name): config.value for config in found.configs}
            if found.error_code not in RETRIABLE:
                self._history.refused.append(f"DescribeConfigs of {self._topic} was told {found.error_code}")
                return {}
            attempt += 1
            await self._client.back_off(attempt)
