"""Actions that stop the work of people: the page says what stops before it sends anything."""

import re

from playwright.sync_api import expect

from harness import API, run


# The colours of a button: text and background.
COLOURS = "(one) => { const style = getComputedStyle(one); return [style.color, style.backgroundColor]; }"


def heading(bench, page, path, name):
    bench.go(page, path)
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)


def ask(page, button):
    """Presses a button of the page, and returns the dialog with everything that it counted."""
    page.get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    expect(dialog.get_by_text("Counting what stops")).to_have_count(0)
    return dialog


def the_last_way_in_is_kept(bench):
    page = bench.logged_in()
    own = page.evaluate("fetch('/auth/session', {headers: {'X-Postern-Console': '1'}}).then((answer) => answer.json())")
    name = own["status"]["accessKey"]

    # The session of the page is not another way in: its administrator has one key.
    heading(bench, page, "/users/admin", "admin")
    for button in ("Disable", "Delete"):
        dialog = ask(page, button)
        expect(dialog.get_by_text("Your own session")).to_be_visible()
        expect(dialog.get_by_text("1 access key and 1 session stop at once")).to_be_visible()
        expect(dialog.get_by_text("This is the last way in")).to_be_visible()
        confirm = dialog.get_by_role("button", name=button, exact=True)
        expect(confirm).to_be_disabled()
        dialog.get_by_label("Type admin to confirm").fill("admin")
        expect(confirm).to_be_disabled()
        dialog.get_by_label("I have another way in").check()
        expect(confirm).to_be_enabled()
        dialog.get_by_role("button", name="Cancel").click()

    # A save that takes the permissions away asks the same.
    def refuses_to_save(name):
        dialog = page.get_by_role("dialog").filter(has=page.get_by_role("heading", name=f"Save {name}", exact=True))
        expect(dialog.get_by_text("This takes the last way in")).to_be_visible()
        save = dialog.get_by_role("button", name="Save", exact=True)
        dialog.get_by_label(f"Type {name} to confirm").fill(name)
        expect(save).to_be_disabled()
        dialog.get_by_label("I have another way in").check()
        expect(save).to_be_enabled()
        bench.axe(page, "a save that takes the last way in")
        dialog.get_by_role("button", name="Cancel").click()
        expect(page.get_by_text("Nothing was saved")).to_be_visible()

    heading(bench, page, "/users/admin?tab=yaml", "admin")
    page.get_by_role("button", name="Edit", exact=True).click()
    editor = page.get_by_role("textbox", name="YAML")
    editor.fill(re.sub(r"  groups:\n(  - .*\n)+", "", editor.input_value()))
    page.get_by_role("button", name="Check", exact=True).click()
    page.get_by_role("button", name="Save", exact=True).click()
    refuses_to_save("admin")
    assert bench.ok("GET", f"{API}/users/admin")["spec"]["groups"] == ["system:masters"]
    page.get_by_role("button", name="Back", exact=True).click()
    page.get_by_role("button", name="Cancel", exact=True).click()
    heading(bench, page, "/keys/admin", "admin")
    page.get_by_role("button", name="Edit", exact=True).click()
    scope = page.get_by_role("dialog")
    scope.get_by_label("Project", exact=True).fill("web")
    scope.get_by_role("button", name="Save", exact=True).click()
    refuses_to_save("admin")
    scope.get_by_role("button", name="Cancel", exact=True).click()
    assert "scope" not in bench.ok("GET", f"{API}/ownedaccesskeys/admin")["spec"]
    heading(bench, page, "/users/admin", "admin")

    # With another administrator, the name is enough.
    bench.user("grace")
    binding = {"metadata": {"name": "grace"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "platform-admin"},
               "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "platform:user:grace"}]}
    bench.ok("POST", "/kubernetes/management/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    dialog = ask(page, "Disable")
    expect(dialog.get_by_text("Your own session")).to_be_visible()
    expect(dialog.get_by_text("This is the last way in")).to_have_count(0)
    dialog.get_by_role("button", name="Cancel").click()

    # The key of the page itself.
    heading(bench, page, f"/keys/{name}", name)
    dialog = ask(page, "Delete")
    expect(dialog.get_by_text("Your own session")).to_be_visible()
    confirm = dialog.get_by_role("button", name="Delete", exact=True)
    expect(confirm).to_be_disabled()
    dialog.get_by_label(re.compile("^Type ")).fill(name)
    confirm.click()
    bench.until_login(page)


def a_user_and_several_keys_stop_with_their_names(bench):
    key = bench.user("ada")
    bench.key("spare", {"user": "ada"})
    bench.logged_in(key, bench.new_context())
    page = bench.logged_in()
    heading(bench, page, "/sessions", "Sessions")
    page.get_by_role("row").filter(has_text="ada").get_by_role("button", name="End").click()
    dialog = page.get_by_role("dialog", name="End 1 session")
    expect(dialog.get_by_text("This logs out user/ada.")).to_be_visible()
    dialog.get_by_role("button", name="Cancel").click()
    heading(bench, page, "/users/ada", "ada")
    dialog = ask(page, "Disable")
    expect(dialog.get_by_text("2 access keys and 1 session stop at once")).to_be_visible()
    confirm = dialog.get_by_role("button", name="Disable", exact=True)
    expect(confirm).to_be_disabled()
    assert "disabled" not in bench.ok("GET", f"{API}/users/ada")["spec"]
    # A button that does nothing never looks enabled, and its text is not white on white under the pointer.
    page.mouse.move(0, 0)
    disabled = confirm.evaluate(COLOURS)
    confirm.hover(force=True)
    assert confirm.evaluate(COLOURS) == disabled, (confirm.evaluate(COLOURS), disabled)
    dialog.get_by_label("Type ada to confirm").fill("ada")
    expect(confirm).to_be_enabled()
    enabled = confirm.evaluate(COLOURS)
    assert all(one != other for one, other in zip(enabled, disabled)), (enabled, disabled)
    confirm.click()
    expect(page.get_by_role("button", name="Enable", exact=True)).to_be_visible()
    assert bench.ok("GET", f"{API}/users/ada")["spec"]["disabled"] is True

    bench.go(page, "/users")
    for row in ("ada", "grace"):
        page.get_by_role("checkbox", name=f"Select {row}").check()
    dialog = ask(page, "Delete")
    confirm = dialog.get_by_role("button", name="Delete 2", exact=True)
    expect(confirm).to_be_disabled()
    dialog.get_by_label("Type delete 2 to confirm").fill("delete 2")
    expect(confirm).to_be_enabled()


run(the_last_way_in_is_kept, a_user_and_several_keys_stop_with_their_names)
