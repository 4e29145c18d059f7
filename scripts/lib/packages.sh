#!/usr/bin/env bash
# Which packages a role needs on this system, by the list scripts/packages, and how they are installed.
# To be sourced by scripts/lib/setup.sh, which sets `repository`.
# shellcheck disable=SC2154

os_release=${KEEL_OS_RELEASE:-/etc/os-release}

# system_says KEY: a value of /etc/os-release.
system_says() {
  # shellcheck disable=SC1090  # its syntax is that of shells
  [ ! -r "$os_release" ] || (. "$os_release" && printf '%s' "${!1:-}")
}

# package_family: apt, dnf or zypper; fails on a system that scripts/packages does not know.
package_family() {
  local name
  for name in $(system_says ID) $(system_says ID_LIKE); do
    case "$name" in
      debian | ubuntu) say apt && return ;;
      fedora) say dnf && return ;;
      opensuse* | suse) say zypper && return ;;
    esac
  done
  return 1
}

# packages FAMILY ROLE...: the lines "package|proof|what it is for" of the list, without blanks around them. Packages that
# the system does not have are left out.
packages() {
  local family=$1 role
  shift
  for role in "$@"; do
    awk -F' *[|] *' -v role="$role" -v family="$family" '
      BEGIN { column["apt"] = 2; column["dnf"] = 3; column["zypper"] = 4 }
      !/^#/ && $1 == role && $column[family] != "-" { print $column[family] "|" $5 "|" $6 }' "$repository/scripts/packages"
  done
}

# proven PROOF: whether a header (its name has a dot) or a program is there, or a compiler links a library with an option.
proven() {
  local folder compiler option
  case "$1" in
    *" -"*)
      read -r compiler option <<<"$1"
      # libFuzzer has a main() of its own.
      printf 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }
        __attribute__((weak)) int main() { return 0; }\n' | "$compiler" -x c++ "$option" -o /dev/null - >/dev/null 2>&1
      ;;
    *.*)
      for folder in ${KEEL_DEPS:+"$KEEL_DEPS/include"} /usr/include /usr/local/include "/usr/include/$(uname -m)-linux-gnu"; do
        [ -e "$folder/$1" ] && return 0
      done
      # Anywhere else that the compiler looks: CPATH, or a prefix of its own.
      command -v g++ >/dev/null && printf '#include <%s>\n' "$1" | g++ -std=c++20 -E -x c++ - >/dev/null 2>&1
      ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

# missing_packages ROLE...: the lines of `packages` whose proof is not there. On an unknown system the packages have Debian's names.
missing_packages() {
  local package proof what
  packages "$(package_family || say apt)" "$@" | while IFS='|' read -r package proof what; do
    proven "$proof" || printf '%s|%s|%s\n' "$package" "$proof" "$what"
  done
}

# names_of LINES: the packages of such lines, each once, on one line.
names_of() { cut -d'|' -f1 <<<"$1" | awk 'NF && !seen[$0]++' | tr '\n' ' ' | sed 's/ $//'; }

# list_of LINES: one line for each, for people: "  fmt/core.h: number and text formatting (Debian: libfmt-dev)".
list_of() {
  local package proof what
  while IFS='|' read -r package proof what; do
    [ -z "$package" ] || printf '  %-18s %s (Debian: %s)\n' "$proof" "$what" "$package"
  done <<<"$1"
}

without_root="Where nothing can be installed: scripts/bundle-deps DIR, on a machine that has the libraries, fills a folder to
copy here; then run this again with KEEL_DEPS=DIR (docs/dependencies.md)."

# ensure_packages YES ROLE...: installs what is missing. Asks first, unless YES is 1. Fails where something is missing still,
# unless its role is `part`, `bench` or `page`: without these, keel is built or tested without them, and they are named.
ensure_packages() {
  local yes=$1 all
  shift
  all=$(missing_packages "$@")
  [ -n "$all" ] || return 0
  install_packages_of "$yes" "$all"
  remaining "$@"
}

# remaining ROLE...: fails where a package that is needed is missing, and names the others.
remaining() {
  local role needed="" optional=""
  for role in "$@"; do
    case "$role" in
      part | bench | page) optional+=$(missing_packages "$role")$'\n' ;;
      *) needed+=$(missing_packages "$role")$'\n' ;;
    esac
  done
  optional=$(sed '/^$/d' <<<"$optional") needed=$(sed '/^$/d' <<<"$needed")
  if [ -n "$needed" ]; then
    say "$without_root"
    fail "missing: $(names_of "$needed")"
  fi
  [ -z "$optional" ] || say "going on without:
$(list_of "$optional")"
}

# install_packages_of YES LINES: as far as this system, the rights here and the user's answer allow.
install_packages_of() {
  local yes=$1 family missing install as_root=() answer
  if ! family=$(package_family); then
    say "This is not Debian, Ubuntu, Fedora, openSUSE or a system like them ($os_release). Missing:
$(list_of "$2")"
    return 0
  fi
  missing=$(names_of "$2")
  say "These packages are missing: $missing"
  case "$family" in
    apt) install="apt-get install --no-install-recommends" ;;
    dnf) install="dnf install --setopt=install_weak_deps=False" ;;
    zypper) install="zypper install --no-recommends" ;;
  esac
  if ! command -v "${install%% *}" >/dev/null; then
    say "There is no ${install%% *} here to install them."
    return 0
  fi
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      say "There is neither root nor sudo here. An administrator can: $install $missing"
      return 0
    fi
    as_root=(sudo)
  fi
  if [ "$yes" -ne 1 ]; then
    if [ ! -t 0 ]; then
      say "There is nobody to ask; run this again with --yes, or: $install $missing"
      return 0
    fi
    read -r -p "Install them with ${as_root[*]:+sudo }${install%% *}? [Y/n] " answer
    case "$answer" in "" | [yY]*) ;; *) return 0 ;; esac
  fi
  local words=()
  read -r -a words <<<"$missing"
  case "$family" in
    apt)
      if ! ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1; then "${as_root[@]}" apt-get update -q || fail "apt-get update failed"; fi
      "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${words[@]}"
      ;;
    dnf) "${as_root[@]}" dnf install -y --setopt=install_weak_deps=False "${words[@]}" ;;
    zypper) "${as_root[@]}" zypper --non-interactive install --no-recommends "${words[@]}" ;;
  esac || fail "${install%% *} could not install: $missing"
  find_mpi
}

# find_mpi: Fedora and openSUSE keep MPI's programs in a folder of their own, which is in nobody's PATH.
find_mpi() {
  local folder
  command -v mpicc >/dev/null && return
  for folder in /usr/lib64/openmpi/bin /usr/lib64/mpi/gcc/*/bin; do
    if [ -x "$folder/mpicc" ]; then
      PATH="$PATH:$folder"
      return
    fi
  done
}
