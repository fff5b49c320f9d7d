//! A list by a prefix of names has the same objects as the whole list with a filter, whatever its pages are.

use super::*;

/// All of them are valid names, and many are prefixes of others.
const NAMES: &[&str] =
    &["a", "aa", "aaa", "aab", "ab", "ab-c", "ab.c", "abc", "b", "ba", "c-a", "z", "zz"];

const PREFIXES: &[&str] = &["", "a", "aa", "aaa", "aaaa", "ab", "ab-", "ab.", "b", "c", "zz", "0"];

const NAMESPACES: [&str; 2] = ["default", "platform"];

/// The namespace and name of an object.
type Found = (String, String);

impl Fixture {
    /// All pages of a list by a prefix, and the rest after the first page as the server counted it.
    async fn by_prefix(&self, list: &Permit, query: &str) -> (Vec<Found>, Option<usize>) {
        let (mut all, mut rest, mut token) = (Vec::new(), None, String::new());
        loop {
            let page = self.registry.list(list, &options(&format!("{query}{token}"))).await;
            let page = page.unwrap();
            let objects = page.objects.iter().map(|object| object.decode().unwrap().metadata);
            all.extend(objects.map(|metadata| (metadata.namespace, metadata.name)));
            if token.is_empty() {
                rest = page.remaining;
            }
            let Some(next) = page.continue_token else { return (all, rest) };
            token = format!("&continue={next}");
        }
    }

    async fn fill(&self) {
        for namespace in NAMESPACES {
            for name in NAMES {
                self.make(within(namespace, &SharedSecret, name), json!({})).await;
            }
        }
    }
}

fn expected(namespaces: &[&str], prefix: &str) -> Vec<Found> {
    let named = |namespace: &&str| {
        let namespace = (*namespace).to_owned();
        let names = NAMES.iter().filter(|name| name.starts_with(prefix));
        names.map(|name| (namespace.clone(), (*name).to_owned())).collect::<Vec<_>>()
    };
    namespaces.iter().flat_map(named).collect()
}

#[tokio::test]
async fn each_prefix_and_page_size_is_the_filter_of_the_whole_list() {
    let fixture = fixture().await;
    fixture.fill().await;
    let version = Position::end_of(fixture.store.revision().await.unwrap());
    let inside = permit(Verb::List, "unused").of_all();
    let everywhere = at(&SharedSecret, "unused").permit(Verb::List).of_all();
    for prefix in PREFIXES {
        for limit in [0, 1, 2, 3, 100] {
            let query = format!("fieldSelector=metadata.name%5E%3D{prefix}&limit={limit}");
            let (found, rest) = fixture.by_prefix(&inside, &query).await;
            let wanted = expected(&["platform"], prefix);
            assert_eq!(found, wanted, "{prefix:?} {limit}");
            let more = wanted.len().saturating_sub(limit);
            // The names are one range of keys, so the server counts them.
            assert_eq!(rest, Some(more).filter(|more| limit > 0 && *more > 0), "{prefix:?}");
            let (found, rest) = fixture.by_prefix(&everywhere, &query).await;
            assert_eq!(found, expected(&NAMESPACES, prefix), "{prefix:?} {limit}");
            assert_eq!(rest, None, "only checked objects are counted");
        }
    }
    // The same from the history of the store.
    fixture.make(secret("aac"), json!({})).await;
    fixture.delete(secret("ab")).await;
    fixture.current().await;
    let past = format!("&resourceVersion={version}&resourceVersionMatch=Exact");
    let query = format!("fieldSelector=metadata.name%5E%3Da&limit=0{past}");
    assert_eq!(fixture.by_prefix(&inside, &query).await.0, expected(&["platform"], "a"));
    assert_eq!(fixture.by_prefix(&everywhere, &query).await.0, expected(&NAMESPACES, "a"));
}

#[tokio::test]
async fn a_prefix_selects_together_with_other_terms() {
    let fixture = fixture().await;
    fixture.fill().await;
    let list = permit(Verb::List, "unused").of_all();
    for (terms, wanted) in [
        ("metadata.name^=aa,metadata.name!=aaa", "aa aab"),
        ("metadata.name^=aa,metadata.name^=aaa", "aaa"),
        ("metadata.name^=a,metadata.namespace=default", ""),
        ("metadata.name^=zz,metadata.namespace=platform", "zz"),
        ("metadata.name^=a,metadata.name=b", ""),
        ("metadata.name^=a/", ""),
        ("metadata.name^=/", ""),
    ] {
        let query = format!("fieldSelector={}", terms.replace('=', "%3D").replace('^', "%5E"));
        let (found, _) = fixture.by_prefix(&list, &query).await;
        let names: Vec<_> = found.into_iter().map(|(_, name)| name).collect();
        assert_eq!(names.join(" "), wanted, "{terms}");
    }
}

#[tokio::test]
async fn a_page_of_another_prefix_is_refused() {
    let fixture = fixture().await;
    fixture.fill().await;
    let list = permit(Verb::List, "unused").of_all();
    let page = fixture.registry.list(&list, &options("limit=1")).await.unwrap();
    let token = page.continue_token.unwrap();
    let query = format!("fieldSelector=metadata.name%5E%3Db&limit=1&continue={token}");
    let error = fixture.registry.list(&list, &options(&query)).await.err().unwrap();
    assert_eq!(error.code(), 400, "{}", error.status().message);
}

#[tokio::test]
async fn a_watch_by_a_prefix_has_the_same_objects() {
    let fixture = fixture().await;
    fixture.create("ab").await.unwrap();
    let query = "watch=1&fieldSelector=metadata.name%5E%3Da";
    let mut watcher = fixture.watch(query).await;
    for name in ["b", "a", "ba"] {
        fixture.create(name).await.unwrap();
    }
    fixture.delete(secret("b")).await;
    fixture.delete(secret("ab")).await;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.extend(names(&watcher.next().await.unwrap()));
    }
    assert_eq!(seen, ["ADDED ab", "ADDED a", "DELETED ab"]);
}
