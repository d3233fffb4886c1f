//! A relay to a server that can be closed for a while, so that the server seems slow only to its clients.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Forwards bytes to a server and back. While it is closed, bytes of clients wait.
#[derive(Debug)]
pub struct PausableRelay {
    address: String,
    is_open: watch::Sender<bool>,
    held: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl PausableRelay {
    /// Opens a relay to `server`, a `HOST:PORT`.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn to(server: &str) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?.to_string();
        let (is_open, state) = watch::channel(true);
        let held = Arc::new(AtomicUsize::new(0));
        let (server, counter) = (server.to_owned(), Arc::clone(&held));
        let task = tokio::spawn(async move {
            // They end with this task.
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (server, state, held) = (server.clone(), state.clone(), Arc::clone(&counter));
                connections.spawn(async move {
                    // An error ends one connection, which both sides notice.
                    let _ = pass(client, &server, state, &held).await;
                });
            }
        });
        Ok(Self {
            address,
            is_open,
            held,
            task,
        })
    }

    /// The address for clients: `127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Holds back bytes of clients.
    pub fn close(&self) {
        self.is_open.send_replace(false);
    }

    /// Forwards all bytes again, first those that wait.
    pub fn open(&self) {
        self.is_open.send_replace(true);
    }

    /// The number of times that bytes had to wait.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }
}

impl Drop for PausableRelay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves one connection.
async fn pass(
    client: TcpStream,
    server: &str,
    mut is_open: watch::Receiver<bool>,
    held: &AtomicUsize,
) -> Result<()> {
    let server = TcpStream::connect(server).await?;
    let (mut requests, mut answers) = client.into_split();
    let (mut back, mut forth) = server.into_split();
    let there = async {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let length = requests.read(&mut buffer).await?;
            if length == 0 {
                return forth.shutdown().await.map_err(anyhow::Error::from);
            }
            if !*is_open.borrow_and_update() {
                held.fetch_add(1, Ordering::SeqCst);
                is_open.wait_for(|is_open| *is_open).await?;
            }
            forth.write_all(&buffer[..length]).await?;
        }
    };
    let here = async {
        tokio::io::copy(&mut back, &mut answers).await?;
        Ok(())
    };
    tokio::try_join!(there, here).map(drop)
}
