//! TLS around the streams of a network: both ends show a certificate, and both must be signed by the authority that is set.
//!
//! It hides and seals what travels; who may speak is for the secret, which is proved inside.

use base::error::{Error, ErrorKind, Result};
use base::limit::HELLO_WAIT_MAX;
use base::net::{Boxed, Listener, Net, Stream};
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    self, AlertDescription, CertificateError, ClientConfig, InvalidMessage, RootCertStore, ServerConfig,
};
use tokio_rustls::{Accept, TlsAcceptor, TlsConnector, TlsStream};

/// What a program shows and wants to be shown. Clones are the same.
#[derive(Clone)]
pub struct Tls {
    connector: TlsConnector,
    acceptor: TlsAcceptor,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls(hidden)")
    }
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, text)
}

/// The certificates in a file, at least one.
fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let read: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(invalid(format!("{what} holds no certificate; it is a PEM file with BEGIN CERTIFICATE"))),
        Err(error) => Err(invalid(format!("{what} is damaged ({error}); it is a PEM file with BEGIN CERTIFICATE"))),
    }
}

impl Tls {
    /// What is shown: a certificate (with those between it and the authority) and its key; and the authority that must have
    /// signed what others show. All are texts in PEM. `Invalid`, with the name of the part: one of them is none, or they do not fit.
    pub fn from_pem(certificate: &[u8], key: &[u8], authority: &[u8]) -> Result<Tls> {
        let own = certificates("the certificate", certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| {
            invalid(format!("the key cannot be read ({error}); it is a PEM file with BEGIN PRIVATE KEY"))
        })?;
        let mut roots = RootCertStore::empty();
        for root in certificates("the authority", authority)? {
            roots
                .add(root)
                .map_err(|error| invalid(format!("the authority holds no authority's certificate: {error}")))?;
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(default_provider());
        let unfit = |error: rustls::Error| invalid(format!("certificate and key do not fit together: {error}"));
        let versions = &[&TLS13];
        let client = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions);
        let client = client.map_err(unfit)?.with_root_certificates(roots.clone());
        let client = client.with_client_auth_cert(own.clone(), key.clone_key()).map_err(unfit)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
            .build()
            .map_err(|error| invalid(format!("the authority cannot be used: {error}")))?;
        let server = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions).map_err(unfit)?;
        let server = server.with_client_cert_verifier(verifier).with_single_cert(own, key).map_err(unfit)?;
        Ok(Tls { connector: TlsConnector::from(Arc::new(client)), acceptor: TlsAcceptor::from(Arc::new(server)) })
    }

    /// The same network with every stream inside TLS.
    pub fn over(&self, net: Arc<dyn Net>) -> Arc<dyn Net> {
        Arc::new(TlsNet { net, tls: self.clone() })
    }
}

struct TlsNet {
    net: Arc<dyn Net>,
    tls: Tls,
}

struct TlsListener {
    listener: Box<dyn Listener>,
    acceptor: TlsAcceptor,
}

/// A stream inside TLS.
struct TlsPeer {
    peer: String,
    near: bool,
    state: State,
}

enum State {
    /// Taken, and not agreed yet: whoever waits for its bytes waits for that, and nobody else does.
    Agreeing(Box<Accept<Box<dyn Stream>>>),
    Open(Box<TlsStream<Box<dyn Stream>>>),
    Failed,
}

impl Net for TlsNet {
    fn connect<'a>(&'a self, address: &'a str) -> Boxed<'a, Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let stream = self.net.connect(address).await?;
            let (peer, near) = (stream.peer(), stream.is_near());
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            let name = ServerName::try_from(host.to_string())
                .map_err(|_| invalid(format!("'{host}' is no name that a certificate can have; write HOST:PORT")))?;
            let agreed = match timeout(HELLO_WAIT_MAX, self.tls.connector.connect(name, stream)).await {
                Ok(agreed) => agreed.map_err(|error| Error::from(explained(error)).during(address))?,
                Err(_) => {
                    let text = format!("{address} did not agree on TLS within {} s", HELLO_WAIT_MAX.as_secs());
                    return Err(Error::new(ErrorKind::Unreachable, text));
                }
            };
            let state = State::Open(Box::new(agreed.into()));
            Ok(Box::new(TlsPeer { peer, near, state }) as Box<dyn Stream>)
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> Boxed<'a, Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = self.net.listen(address).await?;
            Ok(Box::new(TlsListener { listener, acceptor: self.tls.acceptor.clone() }) as Box<dyn Listener>)
        })
    }

    fn is_here(&self, address: &str) -> bool {
        self.net.is_here(address)
    }
}

impl Listener for TlsListener {
    fn address(&self) -> String {
        self.listener.address()
    }

    fn accept(&mut self) -> Boxed<'_, Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let stream = self.listener.accept().await?;
            let (peer, near) = (stream.peer(), stream.is_near());
            let state = State::Agreeing(Box::new(self.acceptor.accept(stream)));
            Ok(Box::new(TlsPeer { peer, near, state }) as Box<dyn Stream>)
        })
    }
}

impl TlsPeer {
    /// The stream once both sides have agreed.
    fn open(&mut self, context: &mut Context<'_>) -> Poll<io::Result<&mut TlsStream<Box<dyn Stream>>>> {
        if let State::Agreeing(accept) = &mut self.state {
            match ready!(Pin::new(accept).poll(context)) {
                Ok(stream) => self.state = State::Open(Box::new(stream.into())),
                Err(error) => {
                    self.state = State::Failed;
                    return Poll::Ready(Err(explained(error)));
                }
            }
        }
        match &mut self.state {
            State::Open(stream) => Poll::Ready(Ok(stream)),
            State::Agreeing(_) | State::Failed => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl Stream for TlsPeer {
    fn peer(&self) -> String {
        self.peer.clone()
    }

    fn is_near(&self) -> bool {
        self.near
    }

    fn abandon(&mut self) {
        if let State::Open(stream) = &mut self.state {
            match stream.as_mut() {
                TlsStream::Client(stream) => stream.get_mut().0.abandon(),
                TlsStream::Server(stream) => stream.get_mut().0.abandon(),
            }
        }
    }
}

impl AsyncRead for TlsPeer {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = ready!(self.open(context))?;
        match ready!(Pin::new(stream).poll_read(context, out)) {
            // Who is killed says no farewell. Frames know where they end, so nothing can be cut off unnoticed.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            read => Poll::Ready(read.map_err(explained)),
        }
    }
}

impl AsyncWrite for TlsPeer {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let stream = ready!(self.open(context))?;
        Pin::new(stream).poll_write(context, bytes).map_err(explained)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = ready!(self.open(context))?;
        Pin::new(stream).poll_write_vectored(context, parts).map_err(explained)
    }

    fn is_write_vectored(&self) -> bool {
        matches!(&self.state, State::Open(stream) if stream.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = ready!(self.open(context))?;
        Pin::new(stream).poll_flush(context).map_err(explained)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = ready!(self.open(context))?;
        Pin::new(stream).poll_shutdown(context).map_err(explained)
    }
}

/// What went wrong in words that say what to do; anything that is not about TLS stays as it is.
fn explained(error: io::Error) -> io::Error {
    let Some(fault) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else { return error };
    let text = match fault {
        rustls::Error::NoCertificatesPresented => {
            "the other side showed no certificate; set tls.certificate and tls.key there".to_string()
        }
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "the other side's certificate is not signed by the authority in tls.authority; have both signed by one authority"
                .to_string()
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "the other side's certificate is for other names than the address that was asked for; have one made with that host among \
              its names (subjectAltName)"
            .to_string(),
        rustls::Error::InvalidCertificate(error) => {
            format!("the other side's certificate is not good: {error}; have a new one made there")
        }
        rustls::Error::AlertReceived(alert) => refused_there(*alert),
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion) => {
            "the other side does not speak TLS; set tls.certificate, tls.key and tls.authority on both sides, or on none"
                .to_string()
        }
        other => format!("no agreement on TLS: {other}; check the tls settings of both sides"),
    };
    io::Error::other(Error::new(ErrorKind::Refused, text))
}

fn refused_there(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "the other side wants a certificate; set tls.certificate and tls.key here".to_string()
        }
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::DecryptError
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateExpired
        | AlertDescription::UnsupportedCertificate => format!(
            "the other side does not accept the certificate in tls.certificate ({alert:?}); have both signed by one authority"
        ),
        other => format!("the other side ended TLS ({other:?}); check the tls settings of both sides"),
    }
}

/// Whether bytes that should be a frame are the beginning of TLS: an alert or a greeting.
pub(crate) fn begins(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15 | 0x16, 0x03, ..])
}

/// The refusal of a peer that speaks TLS to us, who do not.
pub(crate) fn unexpected() -> Error {
    Error::new(
        ErrorKind::Refused,
        "one side speaks TLS and the other does not; set tls.certificate, tls.key and tls.authority on both sides, or on none",
    )
}
