# For Spack: `spack repo add packaging/spack`, then `spack dev-build keel@main +mpi` in a clone of keel. No address is
# written here: `spack install` needs one, as `git = "..."` in the class.

from spack.package import *


class Keel(CMakePackage, CudaPackage):
    """A training runtime in C++20 with its own tensors, kernels, autograd, optimizers and ZeRO, which other codes embed
    from C++, C and Fortran."""

    license("Apache-2.0")

    version("main", branch="main")

    variant("mpi", default=True, description="Ranks as processes of an MPI program")
    variant("fortran", default=True, description="The module for hosts in Fortran")
    variant("onednn", default=True, description="oneDNN's matrix products over keel's own")
    variant("zlib", default=True, description="Reads files that gzip has compressed")
    variant("oniguruma", default=True, description="Any regular expression of a tokenizer")
    variant("curl", default=True, description="Trackers that feed a server, as MLflow's")
    variant("sentencepiece", default=True, description="Reads models of SentencePiece")
    variant("nccl", default=True, when="+cuda", description="NCCL's transport between GPUs")
    variant("cudnn", default=True, when="+cuda", description="cuDNN's attention over keel's own")
    variant("shared", default=True, description="Shared libraries instead of static ones")
    variant("native", default=False, description="Compile for this machine's processor instead of x86-64-v3")

    generator("ninja")
    conflicts("target=aarch64:", msg="keel's kernels are written for x86-64 with AVX2")
    conflicts("cuda_arch=none", when="+cuda", msg="say which GPU: cuda_arch=90, for example")

    depends_on("cxx", type="build")
    depends_on("c", type="build", when="+mpi")
    depends_on("fortran", type="build", when="+fortran")
    depends_on("cmake@3.22:", type="build")
    depends_on("googletest", type="test")

    depends_on("fmt")
    depends_on("yaml-cpp")
    depends_on("nlohmann-json")
    depends_on("utf8proc")
    depends_on("mpi", when="+mpi")
    depends_on("onednn", when="+onednn")
    depends_on("zlib-api", when="+zlib")
    depends_on("oniguruma", when="+oniguruma")
    depends_on("curl", when="+curl")
    depends_on("sentencepiece", when="+sentencepiece")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl@2:", when="+nccl")
    depends_on("cudnn@9:", when="+cudnn")

    def cmake_args(self):
        args = [
            self.define_from_variant("KEEL_MPI", "mpi"),
            self.define_from_variant("KEEL_FORTRAN", "fortran"),
            self.define_from_variant("KEEL_ONEDNN", "onednn"),
            self.define_from_variant("KEEL_ZLIB", "zlib"),
            self.define_from_variant("KEEL_ONIGURUMA", "oniguruma"),
            self.define_from_variant("KEEL_CURL", "curl"),
            self.define_from_variant("KEEL_SENTENCEPIECE", "sentencepiece"),
            self.define_from_variant("KEEL_NATIVE", "native"),
            self.define_from_variant("KEEL_CUDA", "cuda"),
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define("KEEL_BUILD_TESTS", self.run_tests),
            self.define("KEEL_BUILD_BENCH", False),
        ]
        if self.spec.satisfies("+cuda"):
            # Of 9.0 the kernels use what only 9.0a has.
            real = {"90": "90a"}
            archs = [f"{real.get(arch, arch)}-real" for arch in self.spec.variants["cuda_arch"].value]
            args += [
                self.define_from_variant("KEEL_NCCL", "nccl"),
                self.define_from_variant("KEEL_CUDNN", "cudnn"),
                self.define("KEEL_CUDA_ARCHITECTURES", archs),
            ]
        return args
