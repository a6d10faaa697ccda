//! What stands in for ssh, sshd and plain copies, and the proxy that flips a byte: this program in other roles.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::fail;
use crate::network::{PROXY, address};

pub(crate) const COPY_PORT: u16 = 7000;

pub(crate) fn run(role: &str, words: &[String]) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match (role, words.as_slice()) {
        ("ssh", ["-T", "--", host, command]) => ssh(host, command),
        ("sshd", [own, pid_file]) => sshd(own, pid_file),
        ("copy", [file, hosts @ ..]) => copy(file, hosts),
        ("sink", [file]) => sink(file),
        ("proxy", [to, port, after]) => proxy(to, port, after),
        _ => fail("this role is for the rig itself"),
    }
}

/// Hosts are called h1, h2, ….
fn ssh(host: &str, command: &str) {
    let number: usize = host.trim_start_matches('h').parse().unwrap_or_else(|_| fail("hosts are called h1, h2, …"));
    let mut stream = TcpStream::connect((address(number + 1), 22)).unwrap_or_else(|error| fail(&error.to_string()));
    stream.write_all(&(command.len() as u32).to_le_bytes()).unwrap();
    stream.write_all(command.as_bytes()).unwrap();
    let mut up = stream.try_clone().unwrap();
    thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut up);
        let _ = up.shutdown(Shutdown::Write);
    });
    let mut out = std::io::stdout();
    let mut buffer = [0; 1 << 16];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        if out.write_all(&buffer[..count]).and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

/// As sshd: runs what it is told with `sh`, and says from where. The program is on both ends of the connection itself.
fn sshd(own: &str, pid_file: &str) {
    let listener = TcpListener::bind((own, 22)).unwrap_or_else(|error| fail(&error.to_string()));
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        let mut length = [0; 4];
        if stream.read_exact(&mut length).is_err() {
            continue;
        }
        let mut command = vec![0; u32::from_le_bytes(length) as usize];
        if stream.read_exact(&mut command).is_err() {
            continue;
        }
        let client = stream.peer_addr().unwrap();
        // A host whose wire is to be bad is reached through the proxy.
        let shown = fs::read_to_string(format!("{pid_file}.address")).unwrap_or_else(|_| own.to_owned());
        let output: OwnedFd = stream.try_clone().unwrap().into();
        let mut program = Command::new("sh");
        program.arg("-c").arg(format!("exec {}", String::from_utf8_lossy(&command)));
        program.env("SSH_CONNECTION", format!("{} {} {shown} 22", client.ip(), client.port()));
        let input: OwnedFd = stream.into();
        if let Ok(mut child) = program.stdin(Stdio::from(input)).stdout(Stdio::from(output)).spawn() {
            fs::write(pid_file, child.id().to_string()).unwrap();
            thread::spawn(move || drop(child.wait()));
        }
    }
}

/// Plain copies of a file to all hosts at once: the baseline.
fn copy(file: &str, hosts: &[&str]) {
    thread::scope(|scope| {
        for host in hosts {
            scope.spawn(move || {
                let mut stream = TcpStream::connect((*host, COPY_PORT)).unwrap();
                let mut file = fs::File::open(file).unwrap();
                std::io::copy(&mut file, &mut stream).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                // It answers when all of it is written.
                stream.read_exact(&mut [0]).unwrap();
            });
        }
    });
}

fn sink(file: &str) {
    let listener = TcpListener::bind(("0.0.0.0", COPY_PORT)).unwrap();
    println!("listening");
    let (mut stream, _) = listener.accept().unwrap();
    let mut file = fs::File::create(file).unwrap();
    std::io::copy(&mut stream, &mut file).unwrap();
    file.sync_all().unwrap();
    stream.write_all(b"!").unwrap();
}

/// Passes connections on to a host's data port, and flips one bit of what the host sends, once, after so many bytes.
fn proxy(to: &str, port: &str, after: &str) {
    let port: u16 = port.parse().unwrap();
    let mut left: i64 = after.parse().unwrap();
    let listener = TcpListener::bind((address(PROXY), port)).unwrap();
    println!("listening");
    for stream in listener.incoming() {
        let Ok(mut down) = stream else { continue };
        let Ok(mut up) = TcpStream::connect_timeout(
            &std::net::SocketAddr::new(to.parse().unwrap(), port),
            Duration::from_millis(500),
        ) else {
            continue;
        };
        let (mut from_down, mut to_up) = (down.try_clone().unwrap(), up.try_clone().unwrap());
        thread::spawn(move || {
            let _ = std::io::copy(&mut from_down, &mut to_up);
            let _ = to_up.shutdown(Shutdown::Both);
        });
        let mut buffer = [0; 1 << 16];
        while let Ok(count @ 1..) = up.read(&mut buffer) {
            if left >= 0 && left < count as i64 {
                buffer[left as usize] ^= 4;
                println!("flipped");
            }
            left -= count as i64;
            if down.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = down.shutdown(Shutdown::Both);
    }
}
