{{/* What the pods have in common. Those that concern one component take (list $ "component"). */}}

{{- define "multilink.selector" -}}
{{- $root := first . -}}
multilink/release: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ last . }}
{{- end }}

{{- define "multilink.labels" -}}
{{- $root := first . -}}
{{ include "multilink.selector" . }}
app.kubernetes.io/name: multilink
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ $root.Chart.Name }}-{{ $root.Chart.Version }}
{{- end }}

{{- define "multilink.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The user is the image's. The rules are those of the Pod Security Standard `restricted`. */}}
{{- define "multilink.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "multilink.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* The root file system is read-only: what programs write is in one volume that ends with the pod. */}}
{{- define "multilink.scratchMounts" -}}
- {name: scratch, mountPath: /tmp, subPath: tmp}
- {name: scratch, mountPath: /home/multilink, subPath: home}
- {name: scratch, mountPath: /dagster, subPath: dagster}
{{- end }}

{{/* The settings with the policies that they name. */}}
{{- define "multilink.settingsMount" -}}
- {name: settings, mountPath: /settings, readOnly: true}
{{- end }}

{{- define "multilink.settingsVolume" -}}
- name: settings
  configMap:
    name: {{ .Release.Name }}-dagster
    items:
      - {key: settings.yaml, path: settings.yaml}
      {{- range $name, $_ := .Values.policies }}
      - {key: {{ $name }}, path: {{ $name }}}
      {{- end }}
{{- end }}

{{/* The keys that are trusted, and what the values add. */}}
{{- define "multilink.extraEnv" -}}
{{- if .Values.signing.trusted }}
- {name: MULTILINK_TRUST, value: /trusted}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "multilink.extraMounts" -}}
{{- if .Values.signing.trusted }}
- {name: trusted, mountPath: /trusted, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "multilink.extraVolumes" -}}
{{- if .Values.signing.trusted }}
- {name: trusted, configMap: {name: {{ .Release.Name }}-trusted}}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The pod and the container of Dagster's webserver, daemon and code server. */}}
{{- define "multilink.dagsterPod" -}}
serviceAccountName: {{ .Release.Name }}-dagster
{{- include "multilink.pod" . }}
volumes:
  - {name: scratch, emptyDir: {sizeLimit: 2Gi}}
  - {name: dagster, configMap: {name: {{ .Release.Name }}-dagster}}
  {{- include "multilink.settingsVolume" . | nindent 2 }}
  {{- include "multilink.extraVolumes" . | trim | nindent 2 }}
{{- end }}

{{/* Without service links: a Service called dagster-webserver would set DAGSTER_WEBSERVER_PORT, which that program reads. */}}
{{- define "multilink.pod" }}
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- include "multilink.podSecurity" . | nindent 2 }}
{{- end }}

{{- define "multilink.dagsterContainer" -}}
{{- include "multilink.container" . }}
envFrom:
  - configMapRef: {name: {{ .Release.Name }}-environment}
  - secretRef: {name: {{ .Values.environmentSecret }}, optional: true}
env:
  - name: DAGSTER_PG_PASSWORD
    valueFrom: {secretKeyRef: {name: {{ .Values.postgres.passwordSecret }}, key: postgresql-password}}
  {{- include "multilink.extraEnv" . | trim | nindent 2 }}
volumeMounts:
  {{- include "multilink.scratchMounts" . | nindent 2 }}
  {{- include "multilink.settingsMount" . | nindent 2 }}
  - {name: dagster, mountPath: /dagster/dagster.yaml, subPath: dagster.yaml, readOnly: true}
  - {name: dagster, mountPath: /dagster/workspace.yaml, subPath: workspace.yaml, readOnly: true}
  {{- include "multilink.extraMounts" . | trim | nindent 2 }}
{{- end }}

{{- define "multilink.container" -}}
image: {{ include "multilink.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {{- include "multilink.containerSecurity" . | nindent 2 }}
{{- end }}
