"""The YAML editor with another writer, and the page that explains denials."""

import re

from playwright.sync_api import expect

from harness import API, run

TEAM = f"{API}/teams/blue"


def edit(bench, page, change):
    """Opens the editor of the team, and changes its text."""
    bench.go(page, "/teams/blue?tab=yaml")
    page.get_by_role("button", name="Edit", exact=True).click()
    editor = page.get_by_role("textbox", name="YAML")
    expect(editor).to_have_value(re.compile("kind: Team"))
    editor.fill(change(editor.input_value()))
    return editor


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()


def spec(bench):
    return bench.ok("GET", TEAM)["spec"]


def changes_are_merged_by_fields(bench):
    for name in ("ada", "grace"):
        bench.user(name)
    bench.ok("POST", f"{API}/teams", {"metadata": {"name": "blue"}, "spec": {"displayName": "Blue", "description": "old"}})
    page = bench.logged_in()

    # The two fields are on lines next to each other.
    edit(bench, page, lambda text: text.replace("displayName: Blue", "displayName: Mine"))
    bench.ok("PATCH", TEAM, {"spec": {"description": "new"}})
    press(page, "Check")
    expect(page.get_by_text("Both changes are merged")).to_be_visible()
    expect(page.get_by_role("group", name="Changes")).to_contain_text("displayName: Mine")
    press(page, "Save")
    expect(page.get_by_text("blue was saved")).to_be_visible()
    assert (spec(bench)["displayName"], spec(bench)["description"]) == ("Mine", "new"), spec(bench)

    # The same field, and another one of each side.
    edit(bench, page, lambda text: text.replace("displayName: Mine", "displayName: Ours").replace("description: new", "description: kept"))
    bench.ok("PATCH", TEAM, {"spec": {"displayName": "Other", "users": ["ada"]}})
    press(page, "Check")
    fields = page.get_by_role("region", name="Fields that both changed")
    expect(fields).to_contain_text("spec.displayName")
    expect(fields).not_to_contain_text("spec.users")
    expect(page.get_by_role("button", name="Merge", exact=True)).to_be_disabled()
    fields.get_by_role("radio", name="Yours").check()
    press(page, "Merge")
    expect(page.get_by_text("Both changes are merged").first).to_be_visible()
    press(page, "Save")
    expect(page.get_by_role("button", name="Edit", exact=True)).to_be_visible()
    merged = spec(bench)
    assert (merged["displayName"], merged["description"], merged["users"]) == ("Ours", "kept", ["ada"]), merged


def what_is_not_checked_is_not_called_merged(bench):
    page = bench.logged_in()
    # The server refuses the merged object.
    editor = edit(bench, page, lambda text: text.replace("displayName: Ours", "displayName: Ours\n  nonsense: true"))
    bench.ok("PATCH", TEAM, {"spec": {"description": "again"}})
    press(page, "Check")
    expect(page.get_by_text("The server does not accept the change")).to_be_visible()
    expect(page.get_by_text("Both changes are merged")).to_have_count(0)
    expect(editor).to_have_value(re.compile("nonsense: true"))
    press(page, "Cancel")
    # A text that may mean several things.
    edit(bench, page, lambda text: text.replace("displayName: Ours", "displayName: &title Ours"))
    bench.ok("PATCH", TEAM, {"spec": {"description": "and again"}})
    press(page, "Check")
    expect(page.get_by_text(re.compile(r"cannot merge this text: line \d+: the mark &"))).to_be_visible()
    expect(page.get_by_role("textbox", name="YAML")).to_have_value(re.compile("&title"))


def a_secret_is_shown_as_what_can_be_applied(bench):
    bench.secret("db", {"password": "hunter2"})
    page = bench.logged_in()
    bench.go(page, "/secrets/platform/db?tab=yaml")
    shown = page.locator("pre.code")
    expect(shown).to_contain_text("kind: SharedSecret")
    expect(shown).to_contain_text("# Without data: password")
    expect(shown).not_to_contain_text("SecretEntries")
    # base64 of the value.
    expect(shown).not_to_contain_text("aHVudGVyMg")


def a_question_has_one_meaning(bench):
    bench.ok("PATCH", f"{API}/namespaces/platform/sharedsecrets/db", {"spec": {"owner": {"user": "ada"}}})
    page = bench.logged_in()
    bench.go(page, "/why?verb=get&kind=sharedsecrets&name=db&who=user%2Fada")
    ask = page.get_by_role("button", name="Ask")
    expect(page.get_by_role("status").filter(has_text="Choose the namespace of db")).to_be_visible()
    expect(ask).to_have_attribute("aria-disabled", "true")
    page.get_by_label("Namespace").fill("platform")
    page.get_by_label("Namespace").press("Tab")
    expect(ask).to_have_attribute("aria-disabled", "false")
    ask.click()
    expect(page.locator("section").get_by_text("Allowed", exact=True)).to_be_visible()
    expect(page.get_by_text("postern can-i get sharedsecrets/db -n platform --as ada --why")).to_be_visible()
    bench.go(page, "/why?verb=get&kind=sharedsecrets")
    expect(page.get_by_text("postern can-i get sharedsecrets -A --why")).to_be_visible()
    bench.go(page, "/why?verb=get&kind=sharedsecrets&who=ada")
    expect(page.get_by_text("Write user/NAME, team/NAME or key/NAME.").first).to_be_visible()
    expect(ask).to_have_attribute("aria-disabled", "true")


run(changes_are_merged_by_fields, what_is_not_checked_is_not_called_merged, a_secret_is_shown_as_what_can_be_applied,
    a_question_has_one_meaning)
