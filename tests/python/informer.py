"""An informer by the official Python client: it lists, watches from there, and lists again when that ends.

Usage: informer.py SERVER CA_FILE TOKEN NAMESPACE RESOURCE
Prints one line of JSON for each list and each event, until it is ended.
"""

import json
import sys

import kubernetes
from kubernetes.client.exceptions import ApiException

GROUP, VERSION = "management.platform.sh", "v1"


def tell(**line):
    print(json.dumps(line), flush=True)


def objects(server, authority, token):
    configuration = kubernetes.client.Configuration()
    configuration.host = server
    configuration.ssl_ca_cert = authority
    configuration.api_key = {"authorization": f"Bearer {token}"}
    return kubernetes.client.CustomObjectsApi(kubernetes.client.ApiClient(configuration))


def follow(api, namespace, plural):
    where = (GROUP, VERSION, namespace, plural)
    listed = api.list_namespaced_custom_object(*where)
    version = listed["metadata"]["resourceVersion"]
    tell(list=int(version), names=[item["metadata"]["name"] for item in listed["items"]])
    events = kubernetes.watch.Watch().stream(
        api.list_namespaced_custom_object, *where, resource_version=version
    )
    for event in events:
        metadata = event["object"]["metadata"]
        tell(
            change=int(metadata["resourceVersion"]),
            deleted=event["type"] == "DELETED",
            name=metadata["name"],
        )


def main():
    server, authority, token, namespace, plural = sys.argv[1:]
    api = objects(server, authority, token)
    while True:
        try:
            follow(api, namespace, plural)
        except ApiException as refused:
            # The end of a watch, or a scope that allows nothing at this moment.
            if refused.status not in (403, 410):
                raise


main()
