"""What the console shows of identities that no provider confirmed, and the form of a cluster that issues tokens."""

import json

from harness import API, run
from playwright.sync_api import expect

THUMBPRINT = "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"


def data_of_a_client_is_not_shown_as_a_login(bench):
    bench.user("ada")
    identity = {"connector": "corp", "email": "boss@example.com", "username": "boss", "groups": ["admins"]}
    bench.key("claims", {"user": "ada", "identity": identity})
    page = bench.logged_in()
    bench.open(page, "/keys/claims")
    card = page.locator("section", has=page.get_by_role("heading", name="Data of the client, not verified"))
    expect(card.get_by_text("boss@example.com", exact=True)).to_be_visible()
    expect(card.get_by_role("link")).to_have_count(0)
    for text in ("Login", "Confirmed by the provider"):
        expect(page.locator("main").get_by_text(text, exact=True)).to_have_count(0)
    bench.axe(page, "a key with data of a client")
    page.emulate_media(color_scheme="dark")
    bench.axe(page, "a key with data of a client, dark")


def the_key_of_a_session_is_not_rotated(bench):
    page = bench.logged_in()
    key = page.evaluate("fetch('/auth/session', { headers: { 'x-postern-console': '1' } }).then((one) => one.json())")
    bench.open(page, "/keys/" + key["status"]["accessKey"])
    rotate = page.get_by_role("button", name="Rotate")
    expect(rotate).to_have_attribute("aria-disabled", "true")
    expect(page.get_by_role("button", name="Disable")).to_have_attribute("aria-disabled", "false")
    refused = bench.call("PATCH", f"{API}/ownedaccesskeys/{key['status']['accessKey']}", {"spec": {"ttl": 60}})
    assert refused.status == 422, refused.body


def a_logout_without_groups_of_a_provider_needs_no_text(bench):
    page = bench.logged_in()
    page.get_by_role("button", name="Account").click()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    expect(page.get_by_text("--sso-groups-max-age")).to_have_count(0)


def a_scoped_key_is_told_why_it_does_not_log_in(bench):
    page = bench.context.new_page()
    page.goto(bench.origin + "/ui/")
    bench.until_login(page)
    page.locator("input[type=password]").fill(bench.key("scoped", {"scope": {"projects": [{"project": "*"}]}}))
    page.keyboard.press("Enter")
    expect(page.get_by_text("the access key has a scope, and cannot begin a session")).to_be_visible()
    assert not bench.context.cookies(), bench.context.cookies()


def a_cluster_becomes_a_trusted_issuer(bench):
    bench.ok("POST", f"{API}/clusters", {"metadata": {"name": "east"}, "spec": {}})
    page = bench.logged_in()
    bench.open(page, "/trustedissuers")
    page.get_by_role("button", name="New trusted issuer").click()
    dialog = page.get_by_role("dialog")
    editor = dialog.get_by_role("textbox", name="YAML")
    example = editor.input_value()
    check = dialog.get_by_role("button", name="Check", exact=True)
    # The example of a cluster, without one of its fields and then with all.
    whole = example.replace("GitHubActions\n", "Kubernetes\n").replace("# cluster:", "cluster:")
    editor.fill(whole)
    check.click()
    for field in ("spec.issuer", "spec.keyThumbprints"):
        expect(dialog.get_by_text(field).first).to_be_visible()
    editor.fill(whole.replace("# issuer:", "issuer:").replace("# keyThumbprints:", "keyThumbprints:"))
    check.click()
    dialog.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("github")
    for text in ("https://gitlab.example.com", "east", THUMBPRINT):
        expect(page.locator("main").get_by_text(text, exact=True)).to_be_visible()
    bench.axe(page, "a cluster as a trusted issuer")
    spec = bench.ok("GET", f"{API}/trustedissuers/github")["spec"]
    assert (spec["cluster"], spec["keyThumbprints"]) == ("east", [THUMBPRINT]), json.dumps(spec)


run(
    data_of_a_client_is_not_shown_as_a_login,
    the_key_of_a_session_is_not_rotated,
    a_logout_without_groups_of_a_provider_needs_no_text,
    a_scoped_key_is_told_why_it_does_not_log_in,
    a_cluster_becomes_a_trusted_issuer,
)
