./p & P=$!
sleep 0.2
gdb -nx -q -batch -p $P -ex 'info threads' -ex 'break step if n%100==50' -ex c -ex 'p n' -ex 'shell touch at1; while ! test -e go1; do sleep 0.1; done' -ex 'info threads' -ex c -ex 'p n' -ex 'delete' -ex detach
wait $P; echo p ended $?
