{{/* The pod of a server, in a StatefulSet with a database of its own, or in a Deployment on a shared store. */}}
{{- define "postern.podTemplate" -}}
{{- $shared := not (empty .Values.store.url) -}}
metadata:
  labels:
    {{- include "postern.labelsWith" (dict "root" . "more" .Values.podLabels) | nindent 4 }}
  annotations:
    # Other settings need a restart.
    checksum/settings: {{ printf "%s%s" (include "postern.settings" .) (toYaml .Values.auditPolicy) | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "postern.serviceAccountName" . | quote }}
  automountServiceAccountToken: false
  # Otherwise each Service of the namespace becomes several environment variables, and one that is named postern
  # becomes POSTERN_PORT and others.
  enableServiceLinks: false
  {{- $first := include "postern.hosts" . | fromJsonArray | first }}
  {{- if not (or $shared (regexMatch "^[0-9.]+$|:" $first)) }}
  hostAliases:
  - ip: 127.0.0.1
    hostnames: [{{ $first | quote }}]
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds | default 60 | int64 }}
  securityContext:
    runAsNonRoot: true
    {{- with .Values.runAsUser }}
    runAsUser: {{ . | int64 }}
    {{- end }}
    {{- with .Values.runAsGroup }}
    runAsGroup: {{ . | int64 }}
    {{- end }}
    {{- with .Values.fsGroup }}
    fsGroup: {{ . | int64 }}
    {{- end }}
    {{- if not $shared }}
    # A change of every file would give the group the keyring, and the server refuses such files.
    {{- end }}
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  containers:
  - name: postern
    image: {{ include "postern.image" . | quote }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args: [serve]
    env:
    - name: POSTERN_CONFIG
      value: /etc/postern/settings/settings.yaml
    # The image has this variable, too, and a variable wins over the settings file.
    - name: POSTERN_LISTEN
      {{- $listen := default "0.0.0.0" .Values.listenAddress }}
      {{- if contains ":" $listen }}
      value: {{ printf "[%s]:8443" $listen | quote }}
      {{- else }}
      value: {{ printf "%s:8443" $listen | quote }}
      {{- end }}
    {{- if $shared }}
    # The other servers hand requests to agents over to this one at this address.
    - name: POSTERN_MEMBER_HOST
      valueFrom:
        fieldRef:
          fieldPath: status.podIP
    # Below the root of the volume, because the root belongs to another user. Commands in the pod use both variables, too.
    - name: POSTERN_DATA_DIR
      value: /var/lib/postern/data
    - name: POSTERN_KEYRING
      value: {{ default "file:/etc/postern/keyring/seal.keys" .Values.keyring.source | quote }}
    {{- else }}
    # Commands in the pod use the same directories, and the administrator's access key. The directories are below
    # the root of each volume, because the root belongs to another user.
    - name: POSTERN_DATA_DIR
      value: /var/lib/postern/data
    - name: POSTERN_KEY_DIR
      value: {{ if .Values.persistence.keys.enabled }}/var/lib/postern-keys/keys{{ else }}/var/lib/postern/data/keys{{ end }}
    - name: KUBECONFIG
      value: /var/lib/postern/data/admin.kubeconfig
    {{- end }}
    ports:
    - name: https
      containerPort: 8443
      protocol: TCP
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
    {{- with .Values.probes.startup }}
    startupProbe:
      httpGet:
        path: /livez
        port: https
        scheme: HTTPS
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .Values.probes.liveness }}
    livenessProbe:
      httpGet:
        path: /livez
        port: https
        scheme: HTTPS
      {{- toYaml . | nindent 6 }}
    {{- end }}
    readinessProbe:
      httpGet:
        path: /readyz
        port: https
        scheme: HTTPS
      {{- toYaml .Values.probes.readiness | nindent 6 }}
    {{- with .Values.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    volumeMounts:
    - name: data
      mountPath: /var/lib/postern
    {{- if and (not $shared) .Values.persistence.keys.enabled }}
    - name: keys
      mountPath: /var/lib/postern-keys
    {{- end }}
    {{- if .Values.persistence.backup.enabled }}
    - name: backup
      mountPath: /var/backups/postern
    {{- end }}
    - name: settings
      mountPath: /etc/postern/settings
      readOnly: true
    {{- if .Values.tls.secretName }}
    - name: tls
      mountPath: /etc/postern/tls
      readOnly: true
    {{- end }}
    {{- range $name, $secret := include "postern.storeSecrets" . | fromJson }}
    - name: {{ $name }}
      mountPath: /etc/postern/{{ $name }}
      readOnly: true
    {{- end }}
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
  {{- if $shared }}
  # The store is in etcd. Here are only the socket for commands in the pod, and files that are made at each start.
  - name: data
    emptyDir:
      sizeLimit: 2Gi
  {{- end }}
  - name: settings
    configMap:
      name: {{ include "postern.fullname" . | quote }}
  {{- with .Values.tls.secretName }}
  - name: tls
    secret:
      secretName: {{ . | quote }}
      # 0440: the files belong to root, and the group is fsGroup.
      defaultMode: 288
  {{- end }}
  {{- range $name, $secret := include "postern.storeSecrets" . | fromJson }}
  - name: {{ $name }}
    secret:
      secretName: {{ $secret | quote }}
      defaultMode: 288
  {{- end }}
  {{- with .Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- if .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml .Values.topologySpreadConstraints | nindent 4 }}
  {{- else if $shared }}
  topologySpreadConstraints:
  # The loss of a node takes one server.
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: DoNotSchedule
    labelSelector:
      matchLabels:
        {{- include "postern.selectorLabels" . | nindent 8 }}
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "postern.selectorLabels" . | nindent 8 }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
