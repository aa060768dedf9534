//! Generates the gRPC service of `greeter/mod.rs` from a description in Rust, without `protoc`. The
//! tests use the same file.

use tonic_build::manual::{Builder, Method, Service};

pub(crate) fn main() {
    println!("cargo::rerun-if-changed=Cargo.toml");
    let say_hello = Method::builder()
        .name("say_hello")
        .route_name("SayHello")
        .input_type("super::HelloRequest")
        .output_type("super::HelloReply")
        .codec_path("tonic_prost::ProstCodec")
        .build();
    let greeter =
        Service::builder().name("Greeter").package("greeter.v1").method(say_hello).build();
    Builder::new().compile(&[greeter]);
}
