"""exec by the official Python client, over a WebSocket.

Usage: executing.py SERVER CA_FILE TOKEN
Prints what the command printed, and then its exit code.
"""

import sys

import kubernetes
from kubernetes.stream import stream

COMMAND = ["sh", "-c", "read line; echo it read $line; echo its errors >&2; exit 4"]


def main():
    configuration = kubernetes.client.Configuration()
    configuration.host, configuration.ssl_ca_cert = sys.argv[1:3]
    configuration.api_key = {"authorization": f"Bearer {sys.argv[3]}"}
    api = kubernetes.client.CoreV1Api(kubernetes.client.ApiClient(configuration))
    session = stream(
        api.connect_get_namespaced_pod_exec,
        "p",
        "default",
        command=COMMAND,
        stdin=True,
        stdout=True,
        stderr=True,
        tty=False,
        _preload_content=False,
    )
    session.write_stdin("hello\n")
    session.run_forever(timeout=30)
    print(session.read_stdout().strip())
    print(session.read_stderr().strip())
    print(session.returncode)


main()
