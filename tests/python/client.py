"""The official Python client as a controller uses it: an informer, and creates, applies, patches and deletes.

Usage: client.py KUBECONFIG KIND
It prints one line of JSON for each event of the informer, and one for the result of each line of its input. KIND is
Secret, which the informer for typed objects follows, and whose value is in its data; or SharedSecret, which watches of
the dynamic client follow, and whose value is its display name.
"""

import base64
import json
import sys
import threading
import time

import kubernetes
import urllib3
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.informer import SharedInformer

NAMESPACE = "platform"
EVENTS = {"ADDED": "add", "MODIFIED": "update", "DELETED": "delete"}


LOCK = threading.Lock()


def tell(**line):
    with LOCK:
        print(json.dumps(line), flush=True)


class Secret:
    """A core Secret, followed by the informer."""

    version, path = "v1", "/data/value"

    @staticmethod
    def fields(value):
        return {"data": {"value": base64.b64encode(value.encode()).decode()}}

    @staticmethod
    def value(found):
        return base64.b64decode(found["data"]["value"]).decode()

    @staticmethod
    def follow(api, _resource):
        core = kubernetes.client.CoreV1Api(api)
        informer = SharedInformer(core.list_namespaced_secret, namespace=NAMESPACE)
        for kind, event in EVENTS.items():
            informer.add_event_handler(kind, teller(event))
        informer.start()


def teller(event):
    def handle(found):
        value = base64.b64decode(found.data["value"]).decode()
        tell(event=event, name=found.metadata.name, value=value)

    return handle


class SharedSecret:
    """A shared secret, followed by a watch of the dynamic client."""

    version, path = "management.platform.sh/v1", "/spec/displayName"

    @staticmethod
    def fields(value):
        return {"spec": {"displayName": value}}

    @staticmethod
    def value(found):
        return found["spec"]["displayName"]

    @classmethod
    def follow(cls, _api, resource):
        threading.Thread(target=Follower(resource, cls).run, daemon=True).start()


class Follower:
    """Watches of the dynamic client: each goes on where the last one ended, or lists anew when that is not kept."""

    def __init__(self, resource, kind):
        self.resource, self.kind, self.known = resource, kind, {}

    def changed(self, event, found):
        name = found["metadata"]["name"]
        if event == "delete":
            del self.known[name]
        else:
            self.known[name] = found
        tell(event=event, name=name, value=self.kind.value(found))

    def list(self):
        listed = self.resource.get(namespace=NAMESPACE).to_dict()
        items = {item["metadata"]["name"]: item for item in listed["items"]}
        for name in self.known.keys() - items.keys():
            self.changed("delete", self.known[name])
        for name, found in items.items():
            known = self.known.get(name)
            if known is None:
                self.changed("add", found)
            elif known["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
                self.changed("update", found)
        return listed["metadata"]["resourceVersion"]

    def run(self):
        version = None
        while True:
            try:
                version = version or self.list()
                for event in self.resource.watch(namespace=NAMESPACE, resource_version=version):
                    found = event["raw_object"]
                    self.changed(EVENTS[event["type"]], found)
                    version = found["metadata"]["resourceVersion"]
            except ApiException as refused:
                version = None if refused.status == 410 else version
            except (urllib3.exceptions.HTTPError, OSError):
                time.sleep(0.2)


KINDS = {"Secret": Secret, "SharedSecret": SharedSecret}


class Commands:
    def __init__(self, resource, kind):
        self.resource, self.kind = resource, kind

    def object(self, name, value):
        metadata = {"name": name, "namespace": NAMESPACE}
        return {"apiVersion": self.kind.version, "kind": self.kind.__name__, "metadata": metadata} | self.kind.fields(value)

    def create(self, name, value):
        return self.resource.create(body=self.object(name, value), field_manager="python")

    def read(self, name):
        return self.resource.get(name=name, namespace=NAMESPACE)

    def list(self):
        listed = self.resource.get(namespace=NAMESPACE)
        return [item.metadata.name for item in listed.items]

    def apply(self, name, value, manager="python", force=None):
        return self.resource.server_side_apply(
            body=self.object(name, value), field_manager=manager, force_conflicts=force
        )

    def patch(self, body, name, kind):
        return self.resource.patch(
            body=body, name=name, namespace=NAMESPACE, content_type=f"application/{kind}+json"
        )

    def merge(self, name, value):
        return self.patch(self.object(name, value), name, "merge-patch")

    def strategic(self, name, value):
        return self.patch(self.object(name, value), name, "strategic-merge-patch")

    def json(self, name, value):
        new = self.object(name, value)
        for part in self.kind.path[1:].split("/"):
            new = new[part]
        operations = [{"op": "replace", "path": self.kind.path, "value": new}]
        return self.patch(operations, name, "json-patch")

    def delete(self, name, policy):
        options = {"propagationPolicy": policy}
        return self.resource.delete(name=name, namespace=NAMESPACE, body=options)


def main():
    kubeconfig, name = sys.argv[1:]
    kind = KINDS[name]
    api = kubernetes.config.new_client_from_config(kubeconfig)
    resource = DynamicClient(api).resources.get(api_version=kind.version, kind=name)
    kind.follow(api, resource)
    commands = Commands(resource, kind)
    for line in sys.stdin:
        asked = json.loads(line)
        run = asked.pop("run")
        try:
            answer = getattr(commands, run)(**asked)
            if not isinstance(answer, list):
                answer = answer.to_dict()
                answer = None if answer["kind"] == "Status" else kind.value(answer)
            tell(done=run, value=answer)
        except ApiException as refused:
            tell(done=run, code=refused.status)


main()
