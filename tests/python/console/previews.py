"""What the console shows before a change, against what then happens: the scope editor, and the migration wizard."""

import json

from playwright.sync_api import expect

from estate import fill, instance
from harness import API, run

VERBS = ("get", "list", "create", "update", "patch", "delete")

# Objects of each kind: the namespaces that the scopes below are about, and others.
OBJECTS = {
    "sharedsecrets": [f"namespaces/{at}/sharedsecrets/{name}" for at, name in
                      (("platform", "db"), ("platform", "second"), ("p-web", "tls"))],
    "projectsecrets": [f"namespaces/{at}/projectsecrets/{name}" for at, name in
                       (("p-web", "tls"), ("p-shop", "tls"), ("platform", "db"))],
    "virtualclusterinstances": [f"namespaces/p-{at}/virtualclusterinstances/{name}" for at, name in
                                (("web", "ci"), ("web", "qa"), ("shop", "ci"))],
    "spaceinstances": ["namespaces/p-web/spaceinstances/dev", "namespaces/p-shop/spaceinstances/dev"],
    "projects": ["projects/web", "projects/shop"],
    "clusters": ["clusters/east", "clusters/west"],
    "users": ["users/owner", "users/admin"],
    "teams": ["teams/blue"],
}

# Scopes as they are put in: entries with their type and fields.
SCOPES = [
    [("project", {"Project": "web"})],
    [("project", {"Project": "*"})],
    [("space", {"Project": "web", "Name": "dev"})],
    [("virtualCluster", {"Project": "web", "Name": "ci"}), ("cli", {})],
    [("cluster", {"Name": "east"})],
    [("secret", {"Namespace": "platform", "Name": "db"})],
    [("secret", {"Namespace": "p-web", "Name": "tls", "and change it": True})],
    [("read", {})],
    [("cli", {})],
    [("rule", {"As in spec.scope.rules": json.dumps({
        "verbs": ["get", "patch"], "requestTargets": ["Management"],
        "resources": [{"group": "management.platform.sh", "resources": ["projects", "teams"]}]})})],
    [],
]


def open_editor(page, entries):
    """Puts a scope into the form for a new key."""
    page.keyboard.press("n")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("radio", name="Only what").check()
    dialog.get_by_role("button", name="Remove: Project").click()
    for number, (kind, fields) in enumerate(entries):
        dialog.get_by_role("combobox", name="Add to the scope").select_option(kind)
        entry = dialog.locator(".entry").nth(number)
        for label, value in fields.items():
            field = entry.get_by_label(label, exact=True)
            field.check() if value is True else field.fill(value)
    return dialog


def shown(page, dialog):
    """The preview's table: the verbs on all objects and on some, by kind."""
    preview = dialog.locator("section").filter(has_text="What this allows")
    expect(preview.get_by_text("Always within the permissions")).to_be_visible()
    expect(preview).to_have_attribute("aria-busy", "false")
    rows = preview.locator("tbody tr").evaluate_all("(all) => all.map((one) => [...one.cells].map((cell) => cell.innerText))")
    split = lambda text: set() if text == "–" else set(text.split(", "))
    return {kind: (split(on_all), split(on_some)) for kind, on_all, on_some in rows}


def send(bench, key, verb, path):
    """Whether a key may do something with an object. Nothing changes."""
    collection, name = path.rsplit("/", 1)
    method, where, body = {
        "get": ("GET", path, None),
        "list": ("GET", collection, None),
        "create": ("POST", collection, {"metadata": {"name": f"{name}-made"}, "spec": {}}),
        "update": ("PUT", path, ...),
        "patch": ("PATCH", path, {"metadata": {"annotations": {"tried": "yes"}}}),
        "delete": ("DELETE", path, None),
    }[verb]
    if body is ...:
        body = bench.ok("GET", f"{API}/{path}")
    dry = "" if method == "GET" else "?dryRun=All"
    reply = bench.call(method, f"{API}/{where}{dry}", body, key)
    assert reply.status not in (400, 405, 500), (verb, path, reply.body)
    # An object that a key may not read does not exist for it.
    return reply.status not in (403, 404)


def the_scope_editor_shows_what_the_key_can_do(bench):
    fill(bench)
    bench.secret("second", {"key": "value"})
    bench.secret("tls", {"key": "value"}, namespace="p-web")
    bench.ok("POST", f"{API}/namespaces/platform/projectsecrets", {"metadata": {"name": "db"}, "spec": {}})
    place = {"cluster": "east", "namespace": "apps"}
    instance(bench, "virtualclusterinstances", "qa", {**place, "virtualCluster": "qa"})
    instance(bench, "virtualclusterinstances", "ci", {**place, "virtualCluster": "other"}, project="shop")
    instance(bench, "spaceinstances", "dev", {**place, "namespace": "other"}, project="shop")
    bench.ok("POST", f"{API}/namespaces/p-shop/projectsecrets", {"metadata": {"name": "tls"}, "spec": {}})
    bench.ok("POST", f"{API}/clusters", {"metadata": {"name": "west"}, "spec": {}})
    page = bench.logged_in()
    bench.go(page, "/keys")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Access keys")
    expect(page.locator("[data-create][aria-disabled=false]")).to_be_visible()
    differences, compared = [], 0
    for entries in SCOPES:
        dialog = open_editor(page, entries)
        preview = shown(page, dialog)
        dialog.get_by_role("button", name="Create", exact=True).click()
        value = dialog.locator("[data-secret]")
        expect(value).to_be_visible()
        key = value.inner_text()
        dialog.get_by_role("button", name="Done").click()
        expect(dialog).to_have_count(0)
        for kind, paths in OBJECTS.items():
            on_all, on_some = preview.get(kind, (set(), set()))
            for verb in VERBS:
                allowed = [send(bench, key, verb, path) for path in paths]
                compared += 1
                said = "all" if verb in on_all else "some" if verb in on_some else "none"
                fits = {"all": all(allowed), "some": any(allowed), "none": not any(allowed)}[said]
                # A list without the verb list contains the objects that the key may get.
                fits = fits or (said == "none" and verb == "list" and "get" in on_all | on_some)
                if not fits:
                    differences.append(f"{entries}: {verb} {kind} on {said}, but {dict(zip(paths, allowed))}")
    assert not differences, "\n".join(differences)
    print(f"previews: {len(SCOPES)} scopes, {compared} decisions")


WHO_CAN_VERBS = {"use": "use", "read": "get", "change": "update", "delete": "delete"}


def who_can(bench, verb, namespace, name):
    spec = {"verb": verb, "group": "management.platform.sh", "resource": "virtualclusterinstances",
            "namespace": namespace, "name": name}
    body = {"apiVersion": "management.platform.sh/v1", "kind": "ResourceAccessReview", "spec": spec}
    status = bench.ok("POST", f"{API}/resourceaccessreviews", body)["status"]
    assert status.get("complete", True), status
    return {f"{one['kind']}/{one['name']}" for one in status["subjects"] if one["kind"] != "AccessKey"}


def the_wizard_shows_who_gains_and_loses(bench):
    page = bench.logged_in()
    # One instance has rules of its own, one has an owner, who is a member of neither project or of the first.
    place = {"cluster": "east", "namespace": "apps"}
    rules = [{"verbs": ["use", "get"], "users": ["nobody"], "teams": ["blue"]}]
    for name, more in (("plain", {}), ("shared", {"access": rules}), ("owned", {"owner": {"user": "nobody"}}),
                       ("member", {"owner": {"user": "member"}, "access": rules}), ("team", {"owner": {"team": "blue"}})):
        instance(bench, "virtualclusterinstances", name, {**place, "virtualCluster": name}, **more)
        verbs = WHO_CAN_VERBS.items()
        before = {word: who_can(bench, verb, "p-web", name) for word, verb in verbs}
        bench.go(page, f"/virtualclusters/p-web/{name}")
        expect(page.get_by_role("heading", level=1)).to_contain_text(name)
        page.get_by_role("button", name="Move to a project").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("combobox").select_option("shop")
        dialog.get_by_role("button", name="Check the move").click()
        expect(dialog.get_by_text("Access keys follow their owners.")).to_be_visible()
        rows = dialog.locator("tbody tr").evaluate_all("(all) => all.map((one) => [...one.cells].map((cell) => cell.innerText))")
        names = lambda text: set() if text == "no subject" else set(text.split(", "))
        told = {word: (names(gains), names(loses)) for word, gains, loses in rows}
        dialog.get_by_role("button", name="Move to shop").click()
        page.wait_for_url(f"**/ui/virtualclusters/p-shop/{name}")
        after = {word: who_can(bench, verb, "p-shop", name) for word, verb in verbs}
        real = {word: (after[word] - before[word], before[word] - after[word]) for word in before}
        assert told == real, (name, told, real)
        assert any(loses for _, loses in told.values()), (name, told)


run(the_scope_editor_shows_what_the_key_can_do, the_wizard_shows_who_gains_and_loses)
