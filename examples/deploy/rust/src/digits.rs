//! A safe wrapper of digits.h: an instance owns its memory, slices have the lengths that C reads, statuses are errors.
use std::alloc::{alloc, dealloc, handle_alloc_error, Layout};
use std::ffi::{c_char, c_double, c_int, c_void, CStr, CString};
use std::fmt;
use std::ptr::{null_mut, NonNull};

pub const BATCH: usize = 16; // DIGITS_BATCH
pub const PIXELS: usize = 64; // DIGITS_INPUT_ROW
pub const CLASSES: usize = 10; // DIGITS_OUTPUT_ROW
const ALIGNMENT: usize = 64; // DIGITS_ALIGNMENT

/// `digits`: never looked into.
#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

extern "C" {
    fn digits_bytes(threads: c_int) -> usize;
    fn digits_init(memory: *mut c_void, bytes: usize, threads: c_int, made: *mut *mut Opaque) -> c_int;
    fn digits_close(this: *mut Opaque);
    fn digits_last_error(this: *const Opaque) -> *const c_char;
    fn digits_status_text(status: c_int) -> *const c_char;
    fn digits_step(this: *mut Opaque, input: *const f32, targets: *const i64, loss: *mut c_double) -> c_int;
    fn digits_predict(this: *mut Opaque, input: *const f32, rows: i64, output: *mut f32) -> c_int;
    fn digits_save(this: *mut Opaque, path: *const c_char) -> c_int;
    fn digits_load(this: *mut Opaque, path: *const c_char) -> c_int;
    fn digits_steps(this: *const Opaque) -> i64;
}

/// What a call has refused: its status, and why.
#[derive(Debug)]
pub struct Error {
    pub status: i32,
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{} (status {})", self.message, self.status)
    }
}

impl std::error::Error for Error {}

/// An instance. Its memory is freed after it; `&mut self` keeps calls one at a time.
pub struct Digits {
    instance: NonNull<Opaque>,
    memory: NonNull<u8>,
    layout: Layout,
}

// It knows nothing of the thread that made it.
unsafe impl Send for Digits {}

impl Digits {
    pub fn new(threads: i32) -> Result<Digits, Error> {
        let bytes = unsafe { digits_bytes(threads) };
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT).expect("a size that fits");
        let memory = NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        let mut made = null_mut();
        let status = unsafe { digits_init(memory.as_ptr().cast(), bytes, threads, &mut made) };
        match NonNull::new(made) {
            Some(instance) if status == 0 => Ok(Digits { instance, memory, layout }),
            _ => {
                unsafe { dealloc(memory.as_ptr(), layout) };
                Err(Error { status, message: text(unsafe { digits_status_text(status) }) })
            }
        }
    }

    /// One step on BATCH images; returns the loss.
    pub fn step(&mut self, images: &[f32], labels: &[i64]) -> Result<f64, Error> {
        assert_eq!((images.len(), labels.len()), (BATCH * PIXELS, BATCH));
        let mut loss = 0.0;
        let status =
            unsafe { digits_step(self.instance.as_ptr(), images.as_ptr(), labels.as_ptr(), &mut loss) };
        self.checked(status).map(|()| loss)
    }

    /// The scores of the classes, for any number of images.
    pub fn predict(&mut self, images: &[f32]) -> Result<Vec<f32>, Error> {
        assert_eq!(images.len() % PIXELS, 0);
        let rows = images.len() / PIXELS;
        let mut scores = vec![0.0; rows * CLASSES];
        let status = unsafe {
            digits_predict(self.instance.as_ptr(), images.as_ptr(), rows as i64, scores.as_mut_ptr())
        };
        self.checked(status).map(|()| scores)
    }

    pub fn save(&mut self, path: &str) -> Result<(), Error> {
        let path = CString::new(path).expect("a path has no zero byte");
        let status = unsafe { digits_save(self.instance.as_ptr(), path.as_ptr()) };
        self.checked(status)
    }

    pub fn load(&mut self, path: &str) -> Result<(), Error> {
        let path = CString::new(path).expect("a path has no zero byte");
        let status = unsafe { digits_load(self.instance.as_ptr(), path.as_ptr()) };
        self.checked(status)
    }

    pub fn steps(&self) -> i64 {
        unsafe { digits_steps(self.instance.as_ptr()) }
    }

    fn checked(&self, status: c_int) -> Result<(), Error> {
        match status {
            0 => Ok(()),
            _ => Err(Error { status, message: text(unsafe { digits_last_error(self.instance.as_ptr()) }) }),
        }
    }
}

impl Drop for Digits {
    fn drop(&mut self) {
        unsafe {
            digits_close(self.instance.as_ptr());
            dealloc(self.memory.as_ptr(), self.layout);
        }
    }
}

fn text(given: *const c_char) -> String {
    unsafe { CStr::from_ptr(given) }.to_string_lossy().into_owned()
}
