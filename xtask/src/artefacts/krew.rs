//! The manifest of the kubectl plugin for krew, from `deploy/krew/postern.yaml`: with the digests of the archives that were
//! built, and the address of the repository.

use anyhow::{Context as _, Result, ensure};

use super::release::Release;

/// The placeholder for the address of the repository in the template.
const REPOSITORY: &str = "https://REPOSITORY.invalid";

/// The line in front of the platforms, and the first one of each.
const PLATFORMS: &str = "  platforms:\n";
const PLATFORM: &str = "    - selector:\n";

/// The manifest for these archives, with their SHA-256 digests by name. It has the platforms of the archives alone.
pub(crate) fn manifest(
    template: &str,
    release: &Release,
    archives: &[(String, String)],
) -> Result<String> {
    let (head, platforms) =
        template.split_once(PLATFORMS).context("the template has no platforms")?;
    // The comment says how to use the template.
    let head: String = head.split_inclusive('\n').filter(|line| !line.starts_with('#')).collect();
    let with_digest = |platform: &str| {
        let (_, digest) =
            archives.iter().find(|(name, _)| platform.contains(&format!("/{name}\n")))?;
        Some(format!("{PLATFORM}{}", platform.replace(&"0".repeat(64), digest)))
    };
    let built: Vec<_> = platforms.split(PLATFORM).filter_map(with_digest).collect();
    ensure!(!built.is_empty(), "the template has no platform of the archives");
    let manifest = format!("{head}{PLATFORMS}{}", built.concat());
    Ok(match &release.repository {
        Some(address) => manifest.replace(REPOSITORY, address.trim_end_matches('/')),
        None => manifest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artefacts::release::example;

    const TEMPLATE: &str = include_str!("../../../deploy/krew/postern.yaml");

    #[test]
    fn a_manifest_has_the_digests_of_the_archives_that_were_built() {
        let of = |target: &str| format!("postern-0.2.0-{target}-unknown-linux-gnu.tar.gz");
        let (digest, repository) = ("12".repeat(32), "https://git.example/postern/");
        let release = Release { repository: Some(repository.to_owned()), ..example() };
        let built = [(of("x86_64"), digest.clone())];
        let text = manifest(TEMPLATE, &release, &built).unwrap();
        let address =
            format!("uri: https://git.example/postern/releases/download/v0.2.0/{}\n", of("x86_64"));
        assert!(text.contains(&address), "{text}");
        assert_eq!(text.matches("sha256: ").count(), 1, "{text}");
        assert!(text.contains(&format!("sha256: \"{digest}\"\n")), "{text}");
        assert!(text.starts_with("apiVersion: krew"), "{text}");
        for left in ["invalid", "arm64", &"0".repeat(64)] {
            assert!(!text.contains(left), "{left} in {text}");
        }
        let both = [(of("x86_64"), digest.clone()), (of("aarch64"), digest)];
        let text = manifest(TEMPLATE, &release, &both).unwrap();
        assert_eq!(text.matches("sha256: ").count(), 2, "{text}");
        assert!(text.ends_with("to: .\n"), "{text}");
        assert!(manifest(TEMPLATE, &release, &[]).is_err(), "a manifest without a platform");
    }
}
