//! Links libdigits.a from the folder that `trainer.export` has written: DIGITS, by default ../dist.
use std::env;
use std::path::PathBuf;

fn main() {
    let folder = env::var("DIGITS").unwrap_or_else(|_| "../dist".into());
    let folder = PathBuf::from(folder).canonicalize().expect("DIGITS is the folder with libdigits.a");
    println!("cargo:rustc-link-search=native={}", folder.display());
    println!("cargo:rustc-link-lib=static=digits");
    println!("cargo:rerun-if-env-changed=DIGITS");
    println!("cargo:rerun-if-changed={}", folder.join("libdigits.a").display());
}
