//! Streams inside TLS: who is let in, and what is said to both sides when somebody is not.

use crate::support::{Doing, MemoryNet, Serving, echo, link_settings, payload, push, serve_to};
use base::error::{ErrorKind, Result};
use base::net::Net;
use net::{Credentials, Link, LinkSettings, Secret, Tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for this host, and its key.
    fn sign(&self, host: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![host.to_string()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    /// What a program of this authority shows and wants.
    fn program(&self, host: &str) -> Tls {
        self.trusting(host, self)
    }

    /// What a program shows that this authority signed and that wants what another signed.
    fn trusting(&self, host: &str, other: &Authority) -> Tls {
        let (certificate, key) = self.sign(host);
        Tls::from_pem(certificate.as_bytes(), key.as_bytes(), other.pem().as_bytes()).unwrap()
    }
}

fn secret() -> Credentials {
    Credentials { cluster: None, secret: Some(Secret::from_hex(&"5".repeat(64)).unwrap()) }
}

/// Serves at `a`, inside TLS if there is some.
async fn node(net: &Arc<MemoryNet>, tls: Option<&Tls>) -> Serving {
    let net: Arc<dyn Net> = net.clone();
    let net = tls.map_or(net.clone(), |tls| tls.over(net));
    serve_to(&*net, "a", 64 << 20, Arc::new(Doing(echo)), secret()).await
}

async fn client(net: &Arc<MemoryNet>, tls: Option<&Tls>) -> Result<Link> {
    let net: Arc<dyn Net> = net.clone();
    let net = tls.map_or(net.clone(), |tls| tls.over(net));
    Link::connect(net, "a", LinkSettings { credentials: secret(), ..link_settings(1, 2) }).await
}

/// What the node said of those it did not let in.
async fn trouble(server: &Serving) -> String {
    let said = async {
        while server.troubles.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), said).await.expect("the server says why");
    server.troubles.lock().unwrap().join("\n")
}

/// Programs of one authority speak, small and large, in both directions; a node that is killed and comes back is found again.
#[tokio::test(start_paused = true)]
async fn programs_of_one_authority_speak() {
    let net = Arc::new(MemoryNet::default());
    let authority = Authority::new();
    let (there, here) = (authority.program("a"), authority.program("client"));
    let server = node(&net, Some(&there)).await;
    let link = client(&net, Some(&here)).await.unwrap();
    for length in [0, 10, 70_000, 4 << 20] {
        let sent = payload(7, length);
        let (_, back) = link.call(&push(1), sent.clone()).await.unwrap();
        assert_eq!(back.into_bytes(), sent.into_bytes());
    }
    server.task.abort();
    assert!(server.task.await.unwrap_err().is_cancelled());
    let again = node(&net, Some(&there)).await;
    link.call(&push(2), payload(2, 100_000)).await.unwrap();
    assert!(again.troubles.lock().unwrap().is_empty());
}

/// A plain peer, one that shows another authority's certificate, one that trusts another authority and one at an address that
/// the certificate does not name are refused, with words at both ends that say what to do.
#[tokio::test(start_paused = true)]
async fn wrong_peers_are_refused() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (node_ours, here) = (ours.program("a"), ours.program("client"));
    let plain = "speak TLS";
    let foreign = theirs.trusting("client", &ours);
    let distrustful = ours.trusting("client", &theirs);
    let elsewhere = ours.program("b");
    for (name, there, here, told, logged) in [
        ("plain client", Some(&node_ours), None, "one side speaks TLS", plain),
        ("plain node", None, Some(&here), "does not speak TLS", "one side speaks TLS"),
        ("foreign client", Some(&node_ours), Some(&foreign), "does not accept the certificate", "is not signed by"),
        (
            "distrustful client",
            Some(&node_ours),
            Some(&distrustful),
            "is not signed by",
            "does not accept the certificate",
        ),
        ("other names", Some(&elsewhere), Some(&here), "is for other names", "does not accept the certificate"),
    ] {
        let net = Arc::new(MemoryNet::default());
        let server = node(&net, there).await;
        let error = client(&net, here).await.err().unwrap_or_else(|| panic!("{name} was let in"));
        assert!(error.kind() == ErrorKind::Refused && error.text().contains(told), "{name}: {error}");
        assert!(error.text().contains("; "), "{name}: no advice in {error}");
        let said = trouble(&server).await;
        assert!(said.contains(logged), "{name}: '{said}' has no '{logged}'");
        assert_eq!(server.stats.calls.load(std::sync::atomic::Ordering::Relaxed), 0);
    }
}

/// Who shows no certificate is refused, even if it trusts the right authority.
#[tokio::test(start_paused = true)]
async fn a_peer_without_a_certificate_is_refused() {
    let net = Arc::new(MemoryNet::default());
    let authority = Authority::new();
    let server = node(&net, Some(&authority.program("a"))).await;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let stream = net.connect("a").await.unwrap();
    let mut stream = connector.connect(ServerName::try_from("a").unwrap(), stream).await.unwrap();
    drop(stream.write_all(b"anything").await);
    let refused = stream.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert!(refused.to_string().contains("CertificateRequired"), "{refused}");
    assert!(trouble(&server).await.contains("showed no certificate; set tls.certificate"));
}

/// TLS alone lets nobody in: the secret is proved inside it.
#[tokio::test(start_paused = true)]
async fn the_secret_is_proved_inside() {
    let net = Arc::new(MemoryNet::default());
    let authority = Authority::new();
    let _server = node(&net, Some(&authority.program("a"))).await;
    let inside = authority.program("client").over(net);
    let error = Link::connect(inside, "a", link_settings(1, 1)).await.err().expect("refused");
    assert!(error.kind() == ErrorKind::Refused && error.text().contains("gave no secret"), "{error}");
}

/// A peer that begins TLS and falls silent holds nobody up and is cut off in time.
#[tokio::test(start_paused = true)]
async fn a_silent_peer_holds_nobody_up() {
    let net = Arc::new(MemoryNet::default());
    let authority = Authority::new();
    let server = node(&net, Some(&authority.program("a"))).await;
    let mut mute = net.connect("a").await.unwrap();
    mute.write_all(&[0x16, 0x03, 0x01]).await.unwrap();
    let link = client(&net, Some(&authority.program("client"))).await.unwrap();
    link.call(&push(1), payload(1, 10)).await.unwrap();
    let mut rest = Vec::new();
    drop(mute.read_to_end(&mut rest).await);
    assert!(trouble(&server).await.contains("no greeting within 10 s"));
}

/// Files that are none, and a key of another certificate, are refused by name.
#[test]
fn wrong_files_are_named() {
    let authority = Authority::new();
    let (certificate, key) = authority.sign("a");
    let (_, other_key) = authority.sign("a");
    let ca = authority.pem();
    for (certificate, key, ca, word) in [
        ("", key.as_str(), ca.as_str(), "the certificate holds no"),
        (&certificate, "nonsense", &ca, "the key cannot be read"),
        (&certificate, &key, "", "the authority holds no"),
        (&certificate, &other_key, &ca, "do not fit together"),
    ] {
        let refusal = Tls::from_pem(certificate.as_bytes(), key.as_bytes(), ca.as_bytes()).expect_err(word);
        assert!(refusal.kind() == ErrorKind::Invalid && refusal.text().contains(word), "{refusal}");
    }
}
