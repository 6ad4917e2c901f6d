"""The Debian package: what is in it, and that its unit and its scripts name the places it installs to."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ('usr/bin/mayfly-server', 'etc/mayfly/mayfly.conf', 'usr/lib/systemd/system/mayfly-server.service',
         'usr/lib/sysusers.d/mayfly-server.conf', 'usr/share/man/man1/mayfly-server.1.gz',
         'usr/share/doc/mayfly-server/copyright', 'usr/share/doc/mayfly-server/changelog.Debian.gz',
         'usr/share/doc/mayfly-server/docs/expiry.md', 'DEBIAN/md5sums')


def build(out):
    """The package, unpacked."""
    env = {**os.environ, 'DPKG_DEB_COMPRESSOR_TYPE': 'none'}
    done = subprocess.run([str(ROOT / 'scripts' / 'deb'), os.environ['MAYFLY_SERVER'], str(out / 'made')], env=env,
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    subprocess.run(['dpkg-deb', '-R', done.stdout.split()[-1], str(out / 'unpacked')], check=True, timeout=60)
    return out / 'unpacked'


@pytest.mark.skipif(not shutil.which('dpkg-shlibdeps'), reason='dpkg-dev is not installed')
def test_package(tmp_path):
    package = build(tmp_path)
    for path in FILES:
        assert (package / path).is_file(), path
    assert (package / 'DEBIAN' / 'conffiles').read_text() == '/etc/mayfly/mayfly.conf\n'
    shown = subprocess.run([os.environ['MAYFLY_SERVER'], '--version'], capture_output=True, text=True, timeout=60)
    version = re.search(r'mayfly=(\S+)', shown.stdout)[1]
    control = (package / 'DEBIAN' / 'control').read_text()
    assert f'\nVersion: {version}-1\n' in control and re.search(r'^Depends: .*librocksdb', control, re.M)

    unit = (package / 'usr/lib/systemd/system/mayfly-server.service').read_text()
    assert '@PREFIX@' not in unit and 'DynamicUser' not in unit
    assert '\nExecStart=/usr/bin/mayfly-server /var/lib/mayfly/mayfly.conf ' in unit
    assert 'include /etc/mayfly/mayfly.conf' in unit and '\nUser=mayfly\n' in unit

    for script in 'postinst', 'prerm', 'postrm':
        file = package / 'DEBIAN' / script
        assert os.access(file, os.X_OK)
        subprocess.run(['sh', '-n', str(file)], check=True, timeout=60)
