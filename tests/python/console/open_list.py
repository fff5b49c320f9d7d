"""A list that stays open while its server is away: for the checks of several files."""

import select
import socket
import threading

from playwright.sync_api import expect

from clients import in_parallel
from harness import API

ROWS = 150
SECRETS = f"{API}/namespaces/platform/sharedsecrets"


def fill(bench):
    """Secrets with the names row-000 and so on."""
    made = [{"metadata": {"name": f"row-{number:03}"}, "spec": {"data": {"key": "dmFsdWU="}}} for number in range(ROWS)]
    in_parallel(bench, [("POST", SECRETS, body) for body in made])


class Relay:
    """A port that forwards connections to a server, which may change or be away."""

    def __init__(self, origin):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.origin = f"https://{self.host}"
        self.pairs, self.lock = [], threading.Lock()
        self.to(origin)
        threading.Thread(target=self._accept, daemon=True).start()

    def to(self, origin):
        host, port = origin.removeprefix("https://").split(":")
        self.target = (host, int(port))

    def cut(self):
        """Ends all connections, and takes none until there is a target again."""
        self.target = None
        with self.lock:
            for end in [end for pair in self.pairs for end in pair]:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
            self.pairs.clear()

    def _accept(self):
        while True:
            client, _ = self.listener.accept()
            target = self.target
            try:
                server = socket.create_connection(target) if target else None
            except OSError:
                server = None
            if not server:
                client.close()
                continue
            with self.lock:
                self.pairs.append((client, server))
            threading.Thread(target=self._copy, args=(client, server), daemon=True).start()

    @staticmethod
    def _copy(client, server):
        try:
            while True:
                for end in select.select([client, server], [], [])[0]:
                    data = end.recv(65536)
                    if not data:
                        return
                    (server if end is client else client).sendall(data)
        except OSError:
            pass
        finally:
            client.close()
            server.close()


class OpenList:
    """A list behind a relay, scrolled to a row in its middle."""

    def __init__(self, bench):
        self.bench, self.relay = bench, Relay(bench.origin)
        self.direct, self.own = bench.origin, self.relay.origin
        bench.allowed.append(self.own + "/")
        context = bench.new_context(viewport={"width": 1280, "height": 700})
        self.page = context.new_page()
        self.lists = 0
        self.page.on("request", self._count)
        bench.use_link(self.page, bench.link().replace(self.direct, self.own))
        self.page.goto(self.own + "/ui/secrets?ns=platform")
        expect(self.page.locator("[data-row='5']")).to_be_visible()
        self.box = self.page.get_by_role("region", name="Shared secrets")
        self.box.evaluate("(one) => { one.scrollTop = 60 * 36; }")
        expect(self.page.locator("[data-row='65']")).to_be_visible()
        self.live()
        self.lists = 0

    def _count(self, request):
        if "/sharedsecrets?" in request.url and "watch=true" not in request.url:
            self.lists += 1

    def live(self):
        expect(self.page.get_by_role("status").filter(has_text="Live")).to_be_visible()

    def change(self, mark):
        """Creates, changes and deletes rows below the ones on the screen, where the server is now."""
        bench = self.bench
        for number in range(5):
            bench.secret(f"zz-{mark}-{number}", {"key": "value"})
        for number in range(140, 143):
            bench.call("DELETE", f"{SECRETS}/row-{number}")
        bench.ok("PATCH", f"{SECRETS}/row-070", {"spec": {"displayName": f"changed {mark}"}})

    def has_every_row(self, mark):
        """The list has the rows that the server has, at the place where it was."""
        listed = [one["metadata"]["name"] for one in self.bench.ok("GET", SECRETS)["items"]]
        expect(self.page.locator(".count")).to_have_text(str(len(listed)))
        self.live()
        assert self.box.evaluate("(one) => one.scrollTop") == 60 * 36
        expect(self.page.locator("[data-row]").filter(has_text="row-070")).to_contain_text(f"changed {mark}")
        self.page.set_viewport_size({"width": 1280, "height": 500 + 36 * len(listed)})
        expect(self.page.locator("[data-row]")).to_have_count(len(listed))
        shown = self.page.locator("[data-row] th a").all_inner_texts()
        assert shown == sorted(listed), set(listed) ^ set(shown)
        self.page.set_viewport_size({"width": 1280, "height": 700})

    def close(self):
        self.relay.cut()
        self.page.context.close()
