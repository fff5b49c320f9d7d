//! The software bill of materials in `CycloneDX` 1.5, as JSON: the crates in the program, and the
//! npm packages in its web console. In an image, it has the packages of its system libraries too.
//!
//! Its serial number and its time come from the commit, so it is the same in each build.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as STANDARD;
use cargo_metadata::Package;
use serde::Serialize;

use super::archive;
use super::dependencies::{Dependencies, Name, name_of};
use super::licences;
use super::npm::NpmPackage;
use super::release::{PACKAGE, Release};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    bom_format: &'a str,
    spec_version: &'a str,
    serial_number: String,
    version: u32,
    metadata: Metadata<'a>,
    components: Vec<Component>,
    dependencies: Vec<Uses>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    timestamp: &'a str,
    component: Component,
}

/// A part of the program or of the image.
#[derive(Clone, Serialize)]
pub(crate) struct Component {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(rename = "bom-ref")]
    reference: String,
    name: String,
    version: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hashes: Vec<Hash>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    licenses: Vec<Licence>,
    purl: String,
}

#[derive(Clone, Serialize)]
struct Hash {
    alg: &'static str,
    content: String,
}

#[derive(Clone, Serialize)]
struct Licence {
    expression: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Uses {
    #[serde(rename = "ref")]
    reference: String,
    depends_on: Vec<String>,
}

impl Component {
    /// A Debian package, of which an image has files. Its licences are in the image as texts.
    pub(crate) fn debian(name: &str, version: &str, architecture: &str) -> Self {
        // RFC 3986 lets a plus sign stand for itself, and some readers take it for a space.
        let version_in_purl = version.replace('+', "%2B").replace(':', "%3A");
        let purl = format!("pkg:deb/debian/{name}@{version_in_purl}?arch={architecture}");
        Self {
            kind: "library",
            reference: purl.clone(),
            name: name.to_owned(),
            version: version.to_owned(),
            hashes: Vec::new(),
            licenses: Vec::new(),
            purl,
        }
    }

    /// An npm package in the web console.
    ///
    /// # Errors
    /// If the digest is not SHA-512 in base64.
    pub(crate) fn npm(package: &NpmPackage) -> Result<Self> {
        let NpmPackage { name, version, licence, integrity, .. } = package;
        // The @ of a scope is not the one in front of the version.
        let in_purl = |text: &str| text.replace('@', "%40").replace('+', "%2B");
        let purl = format!("pkg:npm/{}@{}", in_purl(name), in_purl(version));
        let digest = integrity.strip_prefix("sha512-");
        let content = digest.and_then(|digest| STANDARD.decode(digest).ok()).map(hex::encode);
        let content = content.with_context(|| format!("the digest of {name} is {integrity}"))?;
        Ok(Self {
            kind: "library",
            reference: purl.clone(),
            name: name.clone(),
            version: version.clone(),
            hashes: vec![Hash { alg: "SHA-512", content }],
            licenses: vec![Licence { expression: licence.clone() }],
            purl,
        })
    }

    fn of_crate(package: &Package, checksums: &BTreeMap<Name, String>) -> Self {
        let (name, version) = name_of(package);
        let checksum = checksums.get(&(name.clone(), version.clone())).cloned();
        let expression = package.license.as_deref().map(licences::normal_form);
        let purl = purl(&(name.clone(), version.clone()));
        Self {
            kind: if name == PACKAGE { "application" } else { "library" },
            reference: purl.clone(),
            name,
            version,
            hashes: checksum.into_iter().map(|content| Hash { alg: "SHA-256", content }).collect(),
            licenses: expression.into_iter().map(|expression| Licence { expression }).collect(),
            purl,
        }
    }
}

fn purl((name, version): &Name) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

/// The document, with the digest of the program and with more components that are not crates.
pub(crate) fn write(
    release: &Release,
    dependencies: &Dependencies,
    program: &[u8],
    more: &[Component],
) -> Result<String> {
    let packages = dependencies.own.iter().chain(&dependencies.foreign);
    let components = packages.map(|package| Component::of_crate(package, &dependencies.checksums));
    let (program_itself, mut components): (Vec<_>, Vec<_>) =
        components.partition(|component| component.name == PACKAGE);
    let mut component = program_itself.into_iter().next().ok_or_else(|| {
        anyhow::anyhow!("the package {PACKAGE} is not among the crates of the program")
    })?;
    component.hashes.push(Hash { alg: "SHA-256", content: archive::sha256(program) });
    components.extend_from_slice(more);
    let uses = dependencies.uses.iter().map(|(user, used)| {
        let mut depends_on: Vec<_> = used.iter().map(purl).collect();
        if user.0 == PACKAGE {
            depends_on.extend(more.iter().map(|component| component.reference.clone()));
        }
        Uses { reference: purl(user), depends_on }
    });
    let leaves = more
        .iter()
        .map(|component| Uses { reference: component.reference.clone(), depends_on: Vec::new() });
    let document = Document {
        bom_format: "CycloneDX",
        spec_version: "1.5",
        serial_number: serial_number(release, &component, more),
        version: 1,
        metadata: Metadata { timestamp: &release.date, component },
        dependencies: uses.chain(leaves).collect(),
        components,
    };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// A UUID of version 8, from the digest of the facts that differ between documents.
fn serial_number(release: &Release, component: &Component, more: &[Component]) -> String {
    let mut names = vec![release.commit.clone(), release.name()];
    names.extend(component.hashes.iter().map(|hash| hash.content.clone()));
    names.extend(more.iter().map(|component| component.reference.clone()));
    let digest = archive::sha256(names.join("\n").as_bytes());
    let (start, middle, end) = (&digest[..12], &digest[13..16], &digest[17..32]);
    let (low, mid) = start.split_at(8);
    let (clock, node) = end.split_at(3);
    format!("urn:uuid:{low}-{mid}-8{middle}-8{clock}-{node}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::artefacts::release::example;

    fn package(name: &str, version: &str, licence: &str) -> Package {
        serde_json::from_value(json!({
            "name": name, "version": version, "id": name, "license": licence, "dependencies": [],
            "targets": [], "features": {}, "manifest_path": "/x/Cargo.toml",
        }))
        .unwrap()
    }

    fn name(name: &str, version: &str) -> Name {
        (name.to_owned(), version.to_owned())
    }

    fn dependencies() -> Dependencies {
        let (own, a, b) = (name("postern", "0.2.0"), name("a", "1.0.0"), name("b", "2.0.0+x"));
        Dependencies {
            own: vec![package("postern", "0.2.0", "Apache-2.0")],
            foreign: vec![package("a", "1.0.0", "MIT/Apache-2.0"), package("b", "2.0.0+x", "ISC")],
            uses: BTreeMap::from([
                (own, [a.clone()].into()),
                (a.clone(), [b.clone()].into()),
                (b, [].into()),
            ]),
            checksums: BTreeMap::from([(a, "12ab".to_owned())]),
        }
    }

    fn written(release: &Release, program: &[u8], more: &[Component]) -> Value {
        write(release, &dependencies(), program, more).unwrap().parse().unwrap()
    }

    #[test]
    fn crates_are_components_with_their_address_licence_and_digest() {
        let document = written(&example(), b"", &[]);
        assert_eq!(document["bomFormat"], "CycloneDX");
        assert_eq!(document["specVersion"], "1.5");
        assert_eq!(document["metadata"]["timestamp"], "1970-01-01T00:00:09Z");
        let program = json!({
            "type": "application", "bom-ref": "pkg:cargo/postern@0.2.0", "name": "postern",
            "version": "0.2.0", "purl": "pkg:cargo/postern@0.2.0",
            "licenses": [{ "expression": "Apache-2.0" }],
            "hashes": [{ "alg": "SHA-256", "content": archive::sha256(b"") }],
        });
        assert_eq!(document["metadata"]["component"], program);
        let components = json!([
            { "type": "library", "bom-ref": "pkg:cargo/a@1.0.0", "name": "a", "version": "1.0.0",
              "purl": "pkg:cargo/a@1.0.0", "licenses": [{ "expression": "MIT OR Apache-2.0" }],
              "hashes": [{ "alg": "SHA-256", "content": "12ab" }] },
            { "type": "library", "bom-ref": "pkg:cargo/b@2.0.0%2Bx", "name": "b",
              "version": "2.0.0+x", "purl": "pkg:cargo/b@2.0.0%2Bx",
              "licenses": [{ "expression": "ISC" }] },
        ]);
        assert_eq!(document["components"], components);
        let uses = json!([
            { "ref": "pkg:cargo/a@1.0.0", "dependsOn": ["pkg:cargo/b@2.0.0%2Bx"] },
            { "ref": "pkg:cargo/b@2.0.0%2Bx", "dependsOn": [] },
            { "ref": "pkg:cargo/postern@0.2.0", "dependsOn": ["pkg:cargo/a@1.0.0"] },
        ]);
        assert_eq!(document["dependencies"], uses);
    }

    #[test]
    fn packages_of_the_system_are_components_of_an_image() {
        let more = [Component::debian("libc6", "1:2.36-9+deb12u1", "amd64")];
        let document = written(&example(), b"", &more);
        let purl = "pkg:deb/debian/libc6@1%3A2.36-9%2Bdeb12u1?arch=amd64";
        assert_eq!(document["components"][2]["purl"], purl);
        assert_eq!(document["components"][2]["version"], "1:2.36-9+deb12u1");
        assert_eq!(document["dependencies"][2]["dependsOn"][1], purl);
        assert_eq!(document["dependencies"][3], json!({ "ref": purl, "dependsOn": [] }));
    }

    #[test]
    fn npm_packages_have_their_licence_their_digest_and_an_escaped_scope() {
        let package = NpmPackage {
            name: "@a/b".to_owned(),
            version: "1.2.3".to_owned(),
            licence: "MIT".to_owned(),
            integrity: "sha512-AAEC".to_owned(),
            text: String::new(),
        };
        let component = Component::npm(&package).unwrap();
        let document = written(&example(), b"", &[component]);
        let purl = "pkg:npm/%40a/b@1.2.3";
        let expected = json!({
            "type": "library", "bom-ref": purl, "name": "@a/b", "version": "1.2.3", "purl": purl,
            "hashes": [{ "alg": "SHA-512", "content": "000102" }],
            "licenses": [{ "expression": "MIT" }],
        });
        assert_eq!(document["components"][2], expected);
        assert_eq!(document["dependencies"][2]["dependsOn"][1], purl);
        let other = NpmPackage { integrity: "sha1-AAEC".to_owned(), ..package };
        assert!(Component::npm(&other).is_err(), "SHA-512 alone is written");
    }

    /// The commit, the program and its parts determine the serial number, and no other fact does.
    #[test]
    fn the_serial_number_is_a_uuid_of_what_is_described() {
        let number = |release: &Release, program: &[u8], more: &[Component]| {
            written(release, program, more)["serialNumber"].as_str().unwrap().to_owned()
        };
        let release = example();
        let first = number(&release, b"", &[]);
        assert_eq!(first, number(&release, b"", &[]));
        let uuid = first.strip_prefix("urn:uuid:").unwrap();
        let lengths: Vec<_> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!((&uuid[14..15], &uuid[19..20]), ("8", "8"), "version and variant of RFC 9562");
        let mut other = release.clone();
        other.commit = "other".to_owned();
        assert_ne!(first, number(&other, b"", &[]));
        assert_ne!(first, number(&release, b"x", &[]));
        assert_ne!(first, number(&release, b"", &[Component::debian("libc6", "1", "amd64")]));
    }
}
