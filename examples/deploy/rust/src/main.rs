//! DIGITS=../dist cargo run -- images.bin labels.bin digits.safetensors
mod digits;

use digits::{Digits, BATCH, CLASSES, PIXELS};
use std::{env, error, fs, path::Path};

fn main() -> Result<(), Box<dyn error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [images, labels, checkpoint] = arguments.as_slice() else {
        return Err("usage: digits IMAGES LABELS CHECKPOINT".into());
    };
    let images: Vec<f32> = fs::read(images)?.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    let labels: Vec<i64> = fs::read(labels)?.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect();

    let mut model = Digits::new(1)?;
    if Path::new(checkpoint).exists() {
        model.load(checkpoint)?;
    }
    println!("accuracy {:.3}", accuracy(&mut model, &images, &labels)?);
    let mut loss = 0.0;
    for _ in 0..5 {
        for (x, y) in images.chunks_exact(BATCH * PIXELS).zip(labels.chunks_exact(BATCH)) {
            loss = model.step(x, y)?;
        }
    }
    println!("after {} steps: loss {loss:.4}, accuracy {:.3}", model.steps(), accuracy(&mut model, &images, &labels)?);
    model.save(checkpoint)?;
    if let Err(error) = model.step(&images[..BATCH * PIXELS], &[100; BATCH]) {
        println!("refused: {error}");
    }
    Ok(())
}

fn accuracy(model: &mut Digits, images: &[f32], labels: &[i64]) -> Result<f64, digits::Error> {
    let scores = model.predict(images)?;
    let right = scores.chunks(CLASSES).zip(labels).filter(|(row, label)| best(row) == **label).count();
    Ok(right as f64 / labels.len() as f64)
}

fn best(scores: &[f32]) -> i64 {
    (0..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b])).unwrap_or(0) as i64
}
