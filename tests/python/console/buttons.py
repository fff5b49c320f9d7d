"""The buttons of the console against the server's decisions.

For each identity and page, each button that the page enables stands for a request that the server does not deny, and each
button that it greys stands for one that the server denies with 403. The requests are sent with the session of the page
itself, as dry runs.
"""

from playwright.sync_api import expect

from estate import fill
from harness import API, run


class OneOf(list):
    """Requests of which one is enough, after those that are needed besides."""

    def __init__(self, requests, besides=()):
        super().__init__(requests)
        self.besides = list(besides)


def requests_of(page, label):
    """The requests that a button leads to: method, path, and body. A button that is not in here fails the check."""
    kind, path, name = page
    whole = f"{API}/{path}"
    patch = lambda spec: [("PATCH", whole, {"spec": spec})]
    common = {
        "Delete": [("DELETE", whole, None)],
        "YAML": [("PUT", whole, ...)],
        # Every object has a rule. A new one needs a permission on its subject, too.
        "Share": patch({"access": []}),
    }
    secret = {
        "Reveal": [("GET", f"{whole}/entry?name={ENTRY[name]}", None)] if name in ENTRY else [],
        "Copy": [("GET", f"{whole}/entry?name={ENTRY[name]}", None)] if name in ENTRY else [],
        **dict.fromkeys(("Add entry", "Set"), patch({"data": {"new": "bmV3"}})),
        "Remove": patch({"data": {"new": None}}),
    }
    own = {
        "secret": secret,
        "key": {
            "Disable": patch({"disabled": True}),
            "Rotate": patch({"ttl": 3600}),
            "Edit": patch({"scope": {"projects": [{"project": "shop"}], "rules": []}}),
        },
        "project": {"Edit": patch({"members": []}), "Edit quotas": patch({"quotas": {"project": {"spaceinstances": "7"}}})},
        "instance": {"Move to a project": [("POST", f"{API}/projects/shop/migratevirtualclusterinstance", MOVE)]},
        # The one role that can be taken away is that of a member of a project.
        "user": {"Disable": patch({"disabled": True}), "Invite": [("POST", f"{whole}/logincode", {})], "Grant a role": GRANTS,
                 "Take away": [("PATCH", f"{API}/projects/{MEMBER_OF.get(name)}", {"spec": {"members": []}})]},
        "team": {"Edit": patch({"users": []}), "Grant a role": GRANTS},
        "cluster": {"New key": [("POST", f"{RBAC}/clusterrolebindings", AGENT_BINDING), ("POST", f"{API}/ownedaccesskeys", AGENT_KEY)]},
    }[kind]
    return {**common, **own}[label]


ENTRY = {"db": "user", "tls": "cert"}
MEMBER_OF = {"owner": "shop"}
RBAC = "/kubernetes/management/apis/rbac.authorization.k8s.io/v1"
# The form asks about the role and the place. A role without rules can be granted by everyone who may create a binding.
GRANT = {
    "metadata": {"name": "made"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "nothing"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "platform:user:nobody"}],
}
GRANTS = OneOf([
    ("POST", f"{RBAC}/clusterrolebindings", GRANT),
    *(("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", GRANT) for namespace in ("platform", "p-web", "p-shop")),
    *(("PATCH", f"{API}/projects/{project}", {"spec": {"members": []}}) for project in ("web", "shop")),
], [("GET", f"{RBAC}/clusterroles", None)])
AGENT_BINDING = {
    "metadata": {"name": "agent-east"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "platform-agent"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "agent:east"}],
}
AGENT_KEY = {"metadata": {"name": "agent-east"}, "spec": {"subject": "agent:east", "scope": {}}}
MOVE = {
    "apiVersion": "management.platform.sh/v1", "kind": "ProjectMigrateVirtualClusterInstance",
    "sourceVirtualClusterInstance": {"name": "ci", "namespace": "p-web"},
}

# Pages: the route, what kind of page, and the path of its object.
PAGES = [
    ("/secrets/platform/db", "secret", "namespaces/platform/sharedsecrets/db"),
    ("/projectsecrets/p-web/tls", "secret", "namespaces/p-web/projectsecrets/tls"),
    ("/keys/ci", "key", "ownedaccesskeys/ci"),
    ("/keys/nobody-key", "key", "ownedaccesskeys/nobody-key"),
    ("/projects/web", "project", "projects/web"),
    ("/projects/shop", "project", "projects/shop"),
    ("/virtualclusters/p-web/ci", "instance", "namespaces/p-web/virtualclusterinstances/ci"),
    ("/spaces/p-web/dev", "instance", "namespaces/p-web/spaceinstances/dev"),
    ("/clusters/east", "cluster", "clusters/east"),
    ("/users/owner", "user", "users/owner"),
    ("/users/nobody", "user", "users/nobody"),
    ("/teams/blue", "team", "teams/blue"),
]

WORKLOAD = {
    "issuer": "github", "scope": {},
    "match": [{"claim": "repository_id", "values": ["4711"]}, {"claim": "ref", "values": ["refs/heads/main"]}],
}

# Lists: the route, the title, the collection that its button creates in, and the body of the create.
LISTS = [
    ("/secrets", "Shared secrets", "namespaces/HOME/sharedsecrets", {"spec": {"data": {"a": "Yg=="}}}),
    ("/projectsecrets", "Project secrets", OneOf(["namespaces/p-web/projectsecrets", "namespaces/p-shop/projectsecrets"]), {"spec": {"data": {"a": "Yg=="}}}),
    ("/projectsecrets?ns=p-web", "Project secrets", "namespaces/p-web/projectsecrets", {"spec": {"data": {"a": "Yg=="}}}),
    ("/projectsecrets?ns=p-shop", "Project secrets", "namespaces/p-shop/projectsecrets", {"spec": {"data": {"a": "Yg=="}}}),
    ("/keys", "Access keys", "ownedaccesskeys", {"spec": {"scope": {}}}),
    ("/projects", "Projects", "projects", {"spec": {}}),
    ("/clusters", "Clusters", "clusters", {"spec": {}}),
    ("/users", "Users", "users", {"spec": {}}),
    ("/teams", "Teams", "teams", {"spec": {}}),
    ("/trustedissuers", "Trusted issuers", "trustedissuers", {"spec": {"type": "GitHubActions"}}),
    ("/workloadidentities", "Workload identities", "workloadidentities", {"spec": WORKLOAD}),
]

FETCH = """
async ([method, path, body]) => {
  const headers = { 'X-Postern-Console': '1', 'X-Postern-Background': '1', Accept: 'application/json' };
  const url = method === 'GET' ? path : `${path}${path.includes('?') ? '&' : '?'}dryRun=All`;
  let text = body === null ? undefined : JSON.stringify(body);
  if (text) headers['Content-Type'] = method === 'PATCH' ? 'application/merge-patch+json' : 'application/json';
  return (await fetch(url, { method, headers, body: text })).status;
}
"""

SELF = """
async (path) => {
  const told = await (await fetch(path, { headers: { 'X-Postern-Console': '1', 'X-Postern-Background': '1' } })).json();
  return told.status.secretNamespaces?.[0];
}
"""

# The buttons whose state the server's decision gives: their text, whether they are enabled, and the card that they are in.
BUTTONS = """
() => [...document.querySelectorAll('main button[aria-disabled]')].map((one) => {
  const label = [...one.childNodes].filter((each) => !(each.classList?.contains('visually-hidden'))).map((each) => each.textContent).join('').trim();
  const card = one.closest('section')?.querySelector('h2')?.textContent ?? '';
  return [label, one.getAttribute('aria-disabled') === 'false', card];
})
"""


class Check:
    """Compares buttons of one identity with the server, and counts."""

    def __init__(self, bench, who, page):
        self.bench, self.who, self.page = bench, who, page
        self.differences, self.enabled, self.greyed = [], 0, 0

    def settled(self):
        expect(self.page.locator("main").get_by_text("Loading")).to_have_count(0)
        expect(self.page.locator("main [title='Checking the permission']")).to_have_count(0)

    def buttons(self):
        self.settled()
        return self.page.evaluate(BUTTONS)

    def compare(self, where, label, is_enabled, requests):
        """Sends the requests of a button. The button is enabled if and only if none of them is denied, or not all of a choice."""
        send = lambda method, path, body: self.page.evaluate(FETCH, [method, path, self.current(path) if body is ... else body])
        answers = [send(*one) for one in requests]
        besides = [send(*one) for one in getattr(requests, "besides", [])]
        assert not any(status in (400, 405, 415, 500, 503) for status in answers), (where, label, answers)
        self.enabled, self.greyed = self.enabled + is_enabled, self.greyed + (not is_enabled)
        is_allowed = all(status != 403 for status in answers)
        if isinstance(requests, OneOf):
            # A project that the caller may not see is 404.
            is_allowed = any(status not in (403, 404) for status in answers) and 403 not in besides
        if is_enabled != is_allowed:
            self.differences.append(f"{self.who}, {where}: {label} is {'enabled' if is_enabled else 'greyed'}, {answers}")

    def current(self, path):
        """The object as it is, for a PUT."""
        return self.bench.ok("GET", path)

    def home(self):
        """The namespace in which the page creates a shared secret, as the server says it to the caller."""
        told = self.page.evaluate(SELF, f"{API}/selves/me")
        return told if told not in (None, "*") else "platform"

    def object(self, route, kind, path):
        name = path.rsplit("/", 1)[1]
        self.bench.go(self.page, route)
        expect(self.page.get_by_role("heading", level=1)).to_contain_text(name)
        gone = self.page.locator("main section.error")
        expect(gone.or_(self.page.locator("main button[aria-disabled]")).first).to_be_visible()
        if gone.count():
            return
        self.compare_all(route, (kind, path, name))
        if kind in ("secret", "project", "instance", "cluster"):
            self.bench.go(self.page, f"{route}?tab=access")
            expect(self.page.get_by_role("heading", name="Access rules")).to_be_visible()
            self.compare_all(f"{route}, access", (kind, path, name))
        if kind == "team":
            self.members(route, path)
        self.bench.go(self.page, f"{route}?tab=yaml")
        edit = self.page.locator("main section button[aria-disabled]")
        expect(edit).to_be_visible()
        self.settled()
        is_enabled = edit.get_attribute("aria-disabled") == "false"
        self.compare(f"{route}, YAML", edit.inner_text(), is_enabled, requests_of((kind, path, name), "YAML"))

    def compare_all(self, where, page):
        for label, is_enabled, card in self.buttons():
            label = "Edit quotas" if (label, card) == ("Edit", "Quotas") else label
            self.compare(where, label, is_enabled, requests_of(page, label))

    def members(self, route, path):
        """The editor of members. A caller may remove some with the permission to change the team, and needs another to add one."""
        card = self.page.locator("section.card").filter(has=self.page.get_by_role("heading", name="Members", exact=True))
        edit = card.get_by_role("button", name="Edit")
        if edit.get_attribute("aria-disabled") == "true":
            return
        edit.click()
        save = card.get_by_role("button", name="Save")
        for name, what in (("reader", "without a member"), ("nobody", "with a new member")):
            listed = card.get_by_role("button", name="Remove reader")
            listed.click() if name == "reader" else card.get_by_role("combobox").fill(name)
            expect(card.get_by_role("button", name="Remove reader")).to_have_count(0)
            if name != "reader":
                card.get_by_role("combobox").press("Enter")
                expect(card.get_by_role("button", name=f"Remove {name}")).to_be_visible()
            self.settled()
            users = [] if name == "reader" else [name]
            is_enabled = save.get_attribute("aria-disabled") == "false"
            self.compare(route, f"Save {what}", is_enabled, [("PATCH", f"{API}/{path}", {"spec": {"users": users}})])
        card.get_by_role("button", name="Cancel").click()

    def list(self, route, title, collection, body):
        self.bench.go(self.page, route)
        # The page before stays until this one is loaded.
        expect(self.page.get_by_role("heading", level=1)).to_have_text(title)
        expect(self.page.locator("[data-create]")).to_be_visible()
        [[label, is_enabled, _]] = self.buttons()
        if "HOME" in collection:
            collection = collection.replace("HOME", self.home())
        made = {"metadata": {"name": "made"}, **body}
        collections = collection if isinstance(collection, OneOf) else [collection]
        self.compare(route, label, is_enabled, type(collections)([("POST", f"{API}/{each}", made) for each in collections]))

    def roles(self):
        """The page of roles: each of its buttons grants one."""
        self.bench.go(self.page, "/roles")
        expect(self.page.get_by_role("heading", level=1)).to_have_text("Roles")
        expect(self.page.locator("main").get_by_text("Loading")).to_have_count(0)
        for label, is_enabled, _ in self.buttons():
            if label in ("Grant a role", "Grant"):
                self.compare("/roles", label, is_enabled, GRANTS)
                if label == "Grant":
                    return


def with_role(bench, name, resources, verbs):
    """A user with the permissions of a role alone. Returns an access key."""
    key = bench.user(name)
    rule = {"apiGroups": ["management.platform.sh"], "resources": resources, "verbs": verbs}
    bench.ok("POST", f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": f"platform:user:{name}"}
    bench.ok("POST", f"{RBAC}/clusterrolebindings",
             {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})
    return key


def buttons_agree_with_the_server(bench):
    keys = fill(bench)
    bench.ok("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "nothing"}, "rules": []})
    bench.ok("POST", f"{API}/trustedissuers", {"metadata": {"name": "github"}, "spec": {"type": "GitHubActions"}})
    # Users who may change objects of a kind, without the permissions that some changes need besides.
    editor = with_role(bench, "editor", ["teams", "trustedissuers"], ["get", "update", "patch", "create"])
    keeper = with_role(bench, "keeper", ["ownedaccesskeys", "workloadidentities"], ["*"])
    identities = {"administrator": None, "owner": keys["owner"], "reader": keys["reader"], "member": keys["member"],
                  "admin of a project": keys["lead"], "nobody": keys["nobody"]}
    # Identities for a kind of page each: the other pages show the same as for the identities above.
    special = {"editor of keys": (keeper, "key"), "editor of teams": (editor, "team")}
    checked = [(who, key, PAGES) for who, key in identities.items()]
    checked += [(who, key, [page for page in PAGES if page[1] == kind]) for who, (key, kind) in special.items()]
    differences, enabled, greyed = [], 0, 0
    for who, key, pages in checked:
        context = bench.new_context()
        page = bench.logged_in(key, context)
        check = Check(bench, who, page)
        for one in pages:
            check.object(*one)
        for one in LISTS:
            check.list(*one)
        check.roles()
        differences += check.differences
        enabled, greyed = enabled + check.enabled, greyed + check.greyed
        print(f"{who}: {check.enabled} enabled, {check.greyed} greyed")
        context.close()
    assert not differences, "\n".join(differences)
    assert enabled > 100 and greyed > 50, (enabled, greyed)


run(buttons_agree_with_the_server)
